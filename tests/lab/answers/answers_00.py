import math
from collections import Counter, defaultdict


def step_by_step(cores, allowed, quota, free_bytes, worker_bytes):
    n = allowed
    if quota is not None and quota < n:
        n = math.floor(quota)
    if n < 1:
        n = 1
    while n * worker_bytes > free_bytes:
        n -= 1
    return n


def with_infinity(cores, allowed, quota, free_bytes, worker_bytes):
    limit = math.inf if quota is None else quota
    return min(int(max(1, min(limit, allowed))), free_bytes // worker_bytes)


def all_cores(cores, allowed, quota, free_bytes, worker_bytes):
    return min(cores, free_bytes // worker_bytes)


def without_quota(cores, allowed, quota, free_bytes, worker_bytes):
    return min(allowed, free_bytes // worker_bytes)


def quota_alone(cores, allowed, quota, free_bytes, worker_bytes):
    n = allowed if quota is None else int(quota)
    return min(max(1, n), free_bytes // worker_bytes)


def rounded_down_to_none(cores, allowed, quota, free_bytes, worker_bytes):
    return min(int(min(allowed, quota or allowed)), free_bytes // worker_bytes)


def without_memory(cores, allowed, quota, free_bytes, worker_bytes):
    return max(1, int(min(allowed, quota or allowed)))


def at_least_one_in_the_end(cores, allowed, quota, free_bytes, worker_bytes):
    return max(1, min(int(min(allowed, quota or allowed)), free_bytes // worker_bytes))


def a_float(cores, allowed, quota, free_bytes, worker_bytes):
    return float(allowed)


def with_a_dict(spans, lane):
    seconds = defaultdict(float)
    for span in spans:
        if span.lane == lane:
            seconds[span.layer] += span.end - span.start
    seconds.pop("wait", None)
    return max(seconds, key=seconds.get)


def layer_by_layer(spans, lane):
    own = [span for span in spans if span.lane == lane and span.layer != "wait"]
    layers = {span.layer for span in own}
    return max(layers, key=lambda layer: sum(s.end - s.start for s in own if s.layer == layer))


def most_spans(spans, lane):
    own = [span.layer for span in spans if span.lane == lane and span.layer != "wait"]
    return Counter(own).most_common(1)[0][0]


def longest_span(spans, lane):
    own = [span for span in spans if span.lane == lane and span.layer != "wait"]
    return max(own, key=lambda span: span.end - span.start).layer


def of_all_lanes(spans, lane):
    return with_a_dict([Renamed(span, lane) for span in spans], lane)


def of_lanes_that_begin_so(spans, lane):
    return of_all_lanes([span for span in spans if span.lane.startswith(lane)], lane)


def waits_count(spans, lane):
    seconds = Counter()
    for span in spans:
        if span.lane == lane:
            seconds[span.layer] += span.end - span.start
    return seconds.most_common(1)[0][0]


def with_its_seconds(spans, lane):
    return Counter({layer_by_layer(spans, lane): 1}).most_common(1)[0]


def prints_the_layer(spans, lane):
    print(layer_by_layer(spans, lane))


class Renamed:
    def __init__(self, span, lane):
        self.lane, self.layer, self.start, self.end = lane, span.layer, span.start, span.end


RIGHT = {
    "00.most_workers": [step_by_step, with_infinity],
    "00.busiest_layer": [with_a_dict, layer_by_layer],
}
WRONG = {
    "00.most_workers": [
        (all_cores, "not for you"),
        (without_quota, "The quota is time"),
        (quota_alone, "so the smaller one counts"),
        (rounded_down_to_none, "half a core is none"),
        (without_memory, "need in memory"),
        (at_least_one_in_the_end, "Not even one worker fits"),
        (a_float, "a whole number: an int"),
    ],
    "00.busiest_layer": [
        (most_spans, "Most spans is not most seconds"),
        (longest_span, "longest single span"),
        (of_all_lanes, "other worker's spans"),
        (of_lanes_that_begin_so, "must be equal"),
        (waits_count, "is not busy"),
        (with_its_seconds, "a str"),
        (prints_the_layer, "is there a `return`"),
    ],
}
