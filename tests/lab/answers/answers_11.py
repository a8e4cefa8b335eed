TRUTH = {
    1: "unpicklable batch",
    2: "killed worker",
    3: "lock held at the fork",
    4: "memory growth",
    5: "slow batch",
}


def by_table():
    return dict(TRUTH)


def by_list():
    names = ["unpicklable batch", "killed worker", "lock held at the fork"]
    return dict(enumerate([*names, "memory growth", "slow batch"], 1))


def a_list():
    return list(TRUTH.values())


def in_words_of_its_own():
    return TRUTH | {2: "out of memory"}


def takes_waiting_for_a_lock():
    return TRUTH | {1: "lock held at the fork"}


def takes_a_signal_for_an_exit():
    return TRUTH | {2: "worker exits"}


def takes_a_lock_for_slowness():
    return TRUTH | {3: "slow batch"}


def takes_growth_for_death():
    return TRUTH | {4: "killed worker"}


def takes_slowness_for_a_lock():
    return TRUTH | {5: "lock held at the fork"}


def takes_it_for_descriptors():
    return TRUTH | {4: "too many open files"}


# How to end workers


def _share_a_deadline(workers, seconds, now):
    deadline = now() + seconds
    for worker in workers:
        worker.join(max(0, deadline - now()))


def as_labkit(workers, grace, now):
    for worker in workers:
        worker.finish()
    _share_a_deadline(workers, grace, now)
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    _share_a_deadline(workers, 1, now)
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            worker.join(5)


def by_looking(workers, grace, now):
    """Does not wait for one after the other, but looks at all."""
    for worker in workers:
        worker.finish()
    ends = now() + grace
    while any(worker.is_alive() for worker in workers) and now() < ends:
        next(worker for worker in workers if worker.is_alive()).join(0.05)
    for force in ("terminate", "kill"):
        alive = [worker for worker in workers if worker.is_alive()]
        for worker in alive:
            getattr(worker, force)()
        for worker in alive:
            worker.join(0.3)


def as_pytorch(workers, grace, now):
    for worker in workers:
        worker.finish()
    for worker in workers:
        worker.join(grace)
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
            worker.join(grace)


def one_by_one(workers, grace, now):
    for worker in workers:
        worker.finish()
        worker.join(grace)
        if worker.is_alive():
            worker.terminate()
            worker.join(1)


def by_force(workers, grace, now):
    for worker in workers:
        worker.finish()
        worker.terminate()
    for worker in workers:
        worker.join(1)


def at_once(workers, grace, now):
    for worker in workers:
        worker.finish()
    _share_a_deadline(workers, grace, now)
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            worker.join()


def trusting(workers, grace, now):
    for worker in workers:
        worker.finish()
    for worker in workers:
        worker.join()


def silent(workers, grace, now):
    _share_a_deadline(workers, grace, now)
    for worker in workers:
        worker.terminate()
        worker.join(1)


def without_kill(workers, grace, now):
    for worker in workers:
        worker.finish()
    _share_a_deadline(workers, grace, now)
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    _share_a_deadline(workers, 1, now)


def without_reaping(workers, grace, now):
    without_kill(workers, grace, now)
    for worker in workers:
        if worker.is_alive():
            worker.kill()


RIGHT = {"11.diagnose": [by_table, by_list], "11.end_workers": [as_labkit, by_looking]}
WRONG = {
    "11.diagnose": [
        (a_list, "A dict with the numbers 1 to 5"),
        (in_words_of_its_own, "There is no fault of this name"),
        (takes_waiting_for_a_lock, "has become of that batch"),
        (takes_a_signal_for_an_exit, "the number of a signal"),
        (takes_a_lock_for_slowness, "No time limit was set"),
        (takes_growth_for_death, "Not yet: it lives"),
        (takes_slowness_for_a_lock, "it would go on by itself"),
        (takes_it_for_descriptors, "unlike those of the others"),
    ],
    "11.end_workers": [
        (as_pytorch, "share one deadline"),
        (one_by_one, "They should end side by side"),
        (by_force, "It may be writing a file"),
        (at_once, "SIGTERM comes first"),
        (trusting, "Every wait needs a limit"),
        (silent, "most end by themselves"),
        (without_kill, "to which SIGTERM means nothing"),
        (without_reaping, "its parent must still"),
    ],
}
