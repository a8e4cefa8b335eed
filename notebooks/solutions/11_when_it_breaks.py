"""Solutions to the exercises of notebook 11."""


def diagnosis():
    """What is wrong with each loader: its number, and a name out of `failures.FAULTS`."""
    return {
        1: "unpicklable batch",
        2: "killed worker",
        3: "lock held at the fork",
        4: "memory growth",
        5: "slow batch",
    }


def end_workers(workers, grace, now):
    """End all workers; force only those that are alive after `grace` seconds, and leave none."""
    for worker in workers:
        worker.finish()
    deadline = now() + grace
    for worker in workers:
        worker.join(max(0, deadline - now()))
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    deadline = now() + 1
    for worker in workers:
        worker.join(max(0, deadline - now()))
        if worker.is_alive():
            worker.kill()
            worker.join()
