"""Messages and the descriptors that ride with them, over one socket pair, until an end-of-file."""

import os
import resource
import select
import socket
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.channel import Channel, close_in_forked_children, handed_over
from labkit.errors import TooManyOpenFiles, open_file_limit
from tests import leftovers

BUFFER = 1 << 16
HEADER = 12
SIZES = [0, 1, 100, BUFFER - HEADER - 1, BUFFER - HEADER, BUFFER - HEADER + 1, BUFFER, 300_000]


@pytest.fixture
def ends():
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def payload(number: int, size: int) -> bytes:
    return bytes([number % 251]) * size


def a_file(content: bytes) -> int:
    """A descriptor that is known by what can be read from it."""
    fd = os.memfd_create("test")
    os.pwrite(fd, content, 0)
    return fd


def content_of(fds: list[int]) -> list[bytes]:
    contents = [os.pread(fd, 100, 0) for fd in fds]
    for fd in fds:
        os.close(fd)
    return contents


def read_all(channel: Channel, n_messages: int) -> list[tuple[bytes, list[int]]]:
    messages = []
    while len(messages) < n_messages:
        while not channel.inbox:
            select.select([channel], [], [])
            channel.read()
        data, fds = channel.inbox.popleft()
        messages.append((bytes(data), fds))
    return messages


messages = st.lists(
    st.tuples(st.sampled_from(SIZES), st.sampled_from([0, 0, 0, 1, 2, 253, 254, 600])), max_size=8
)


@pytest.mark.skipif(not hasattr(socket, "send_fds"), reason="descriptors cannot travel here")
@given(messages=messages)
def test_what_a_worker_sends_arrives_in_order_each_with_its_descriptors(messages):
    main, worker = Channel.pair()

    def send() -> None:
        for number, (size, n_fds) in enumerate(messages):
            fds = [a_file(b"%d %d" % (number, i)) for i in range(n_fds)]
            half = size // 2
            parts = payload(number, half), payload(number, size - half)
            assert worker.send(*parts, fds=fds)  # it blocks until all is written
            for fd in fds:
                os.close(fd)

    sender = threading.Thread(target=send)
    sender.start()
    for number, (data, fds) in enumerate(read_all(main, len(messages))):
        size, n_fds = messages[number]
        assert data == payload(number, size)
        assert content_of(fds) == [b"%d %d" % (number, i) for i in range(n_fds)]
    sender.join()
    main.close()
    worker.close()


@given(sizes=st.lists(st.sampled_from(SIZES), max_size=8), reads=st.lists(st.booleans()))
def test_the_main_process_never_waits_and_nothing_is_lost(sizes, reads):
    main, worker = Channel.pair()
    sent_at_once = [main.send(payload(n, size)) for n, size in enumerate(sizes)]
    if sum(sizes) < 100_000:
        assert all(sent_at_once)
    arrived = []
    schedule = iter(reads)
    while len(arrived) < len(sizes):
        if next(schedule, True):
            ready, _, _ = select.select([worker], [], [], 0)
            if ready:
                worker.read()
            arrived += [worker.inbox.popleft()[0] for _ in range(len(worker.inbox))]
        else:
            main.flush()
        if next(schedule, True):
            main.flush()
    assert arrived == [payload(n, size) for n, size in enumerate(sizes)]
    assert main.flush()
    main.close()
    worker.close()


@given(data=st.data())
def test_a_message_may_arrive_in_any_pieces(data):
    writer, reader = socket.socketpair()
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 10, BUFFER, 70_000]), min_size=1, max_size=4))
    stream = b""
    for number, size in enumerate(sizes):
        stream += int.to_bytes(size, 8, "little") + bytes(4) + payload(number, size)
    channel = Channel(reader)
    while stream:
        n = data.draw(st.sampled_from([1, 5, HEADER, 1000, 50_000]))
        n = writer.send(stream[:n])
        stream = stream[n:]
        channel.read()
    while len(channel.inbox) < len(sizes):
        channel.read()
    arrived = [bytes(message) for message, _ in channel.inbox]
    assert arrived == [payload(number, size) for number, size in enumerate(sizes)]
    for end in (channel, writer):
        end.close()


def test_a_message_of_many_megabytes_goes_both_ways(ends):
    ours, theirs = ends
    data = os.urandom(5_000_000)
    thread = threading.Thread(target=lambda: theirs.send(data))
    thread.start()
    assert read_all(ours, 1)[0][0] == data
    thread.join()
    assert not ours.send(data)  # more than the socket takes
    thread = threading.Thread(target=lambda: read_all(theirs, 1))
    thread.start()
    while not ours.flush():
        select.select([], [ours], [])
    thread.join()


def test_reading_when_nothing_has_come_says_so(ends):
    ours, _ = ends
    with pytest.raises(BlockingIOError):
        ours.read()


# The end


@pytest.mark.parametrize("size", [100, 1_000_000])
@pytest.mark.parametrize("sent", [0, 5, 50, 60_000])
def test_an_end_of_file_in_the_middle_of_a_message_is_an_end(size, sent):
    writer, reader = socket.socketpair()
    channel = Channel(reader)
    writer.sendall((int.to_bytes(size, 8, "little") + bytes(4) + bytes(size))[: min(sent, size)])
    writer.close()
    with pytest.raises(EOFError):
        while True:
            channel.read()
    assert not channel.inbox
    channel.close()


def test_whole_messages_before_the_end_are_kept(ends):
    ours, theirs = ends
    theirs.send(b"first")
    theirs.send(b"second")
    theirs.close()
    with pytest.raises(EOFError):
        while True:
            ours.read()
    assert [bytes(data) for data, _ in ours.inbox] == [b"first", b"second"]


def test_finish_lets_the_rest_arrive_and_then_an_end(ends):
    ours, theirs = ends
    ours.send(b"the last task")
    ours.finish()
    ours.finish()
    theirs.read()
    assert bytes(theirs.inbox.popleft()[0]) == b"the last task"
    with pytest.raises(EOFError):
        theirs.read()
    theirs.send(b"still heard")
    assert bytes(read_all(ours, 1)[0][0]) == b"still heard"


def test_sending_to_nobody_is_an_error(ends):
    ours, theirs = ends
    theirs.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        ours.send(b"anybody?")


def test_unread_messages_and_a_death_are_an_end_of_file(ends):
    # A socket that is closed with unread data resets the connection.
    ours, theirs = ends
    ours.send(b"never read")
    theirs.close()
    with pytest.raises(EOFError):
        ours.read()


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_closing_closes_descriptors_that_nobody_took(read, whole):
    before = leftovers.take()
    ours, theirs = Channel.pair()
    fds = [a_file(b"x") for _ in range(300)]
    theirs.send(b"taken by nobody", fds=fds)
    if not whole:
        rest = int.to_bytes(10, 8, "little") + int.to_bytes(2, 4, "little")
        socket.send_fds(theirs._socket, [rest], fds[:2])  # and then it dies
    for fd in fds:
        os.close(fd)
    if read:
        with suppress(BlockingIOError):
            while True:
                ours.read()
        assert len(ours.inbox) == 1
    ours.close()
    ours.close()
    theirs.close()
    assert leftovers.since(before, grace=0.5) == []


# Too many descriptors


@pytest.fixture
def room_for_20_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(len(taken) + 20) if fd not in taken]  # the limit is one on numbers
    limit = free[19] + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_descriptors_than_may_be_open_are_an_error_with_a_way_out(room_for_20_files):
    before = leftovers.take()
    ours, theirs = Channel.pair()
    fd = a_file(b"x")
    theirs.send(b"many", fds=[fd] * 100)
    with pytest.raises(TooManyOpenFiles) as caught:
        read_all(ours, 1)
    assert caught.value.limit == open_file_limit() == room_for_20_files
    for words in ("Too many open files", "ulimit -n", "sharing_strategy", str(room_for_20_files)):
        assert words in str(caught.value)
    assert "ancdata" not in str(caught.value)
    os.close(fd)
    ours.close()
    theirs.close()
    del caught
    assert leftovers.since(before, grace=0.5) == []


# What forked children keep: see the NOTE in channel.py.


def fork_and_report(report) -> bytes:
    """What `report` returns in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, report())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as result:
        return result.read()


def test_a_forked_child_keeps_no_end(ends):
    ours, theirs = ends
    assert fork_and_report(lambda: b"%d %d" % (ours.fileno(), theirs.fileno())) == b"-1 -1"
    assert ours.fileno() >= 0
    theirs.send(b"the parent's still work")
    assert len(read_all(ours, 1)) == 1


def test_a_worker_keeps_the_end_that_it_was_made_for_and_no_other(ends):
    ours, theirs = ends
    others = Channel.pair()
    with handed_over(theirs):
        kept = fork_and_report(
            lambda: b" ".join(b"%d" % (end.fileno() >= 0) for end in (ours, theirs, *others))
        )
    assert kept == b"0 1 0 0"
    assert fork_and_report(lambda: b"%d" % theirs.fileno()) == b"-1"
    for end in others:
        end.close()


def test_an_end_is_handed_over_by_the_thread_that_forks_only(ends):
    _, theirs = ends
    result = []
    with handed_over(theirs):
        thread = threading.Thread(
            target=lambda: result.append(fork_and_report(lambda: b"%d" % theirs.fileno()))
        )
        thread.start()
        thread.join()
    assert result == [b"-1"]


def test_a_child_closes_the_descriptors_of_its_parents_unread_messages(ends):
    ours, theirs = ends
    fd = a_file(b"x")
    theirs.send(b"unread", fds=[fd])
    os.close(fd)
    while not ours.inbox:
        ours.read()
    (received,) = ours.inbox[0][1]

    def state() -> bytes:
        try:
            os.fstat(received)
        except OSError:
            return b"closed"
        return b"open"

    assert fork_and_report(state) == b"closed"
    assert content_of(ours.inbox.popleft()[1]) == [b"x"]


def test_the_death_of_a_worker_is_seen_while_a_later_one_lives(ends):
    ours = ends[0]
    pids = []
    channels = [ends, Channel.pair()]
    for _, end in channels:
        with handed_over(end):
            pid = os.fork()
        if pid == 0:
            with suppress(EOFError):
                while True:
                    end.read()
            os._exit(0)
        pids.append(pid)
        end.close()
    os.kill(pids[0], 9)
    with pytest.raises(EOFError):
        select.select([ours], [], [], 10)
        ours.read()
    channels[1][0].close()  # and the later one sees that nobody is there any more
    for pid in pids:
        os.waitpid(pid, 0)


def test_whatever_can_be_closed_may_be_closed_in_children():
    class Thing:
        open = True

        def close(self) -> None:
            self.open = False

    thing = Thing()
    close_in_forked_children(thing)
    assert fork_and_report(lambda: b"%d" % thing.open) == b"0"
    assert thing.open
