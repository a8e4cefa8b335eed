import importlib.util
import multiprocessing
import os
import sys
import threading
import types


def by_table(start_method, workers, batches):
    return 1 + {"fork": 0, "spawn": 1, "forkserver": 1}[start_method] * workers


def by_summing(start_method, workers, batches):
    by_worker = [start_method in ("spawn", "forkserver") for _ in range(workers)]
    return 1 + sum(by_worker)


def once_a_batch(start_method, workers, batches):
    return 1 if start_method == "fork" else 1 + batches


def as_under_fork(start_method, workers, batches):
    return 1


def as_under_spawn(start_method, workers, batches):
    return 1 + workers


def without_the_main_process(start_method, workers, batches):
    return 1 if start_method == "fork" else workers


def server_imports(start_method, workers, batches):
    return {"fork": 1, "spawn": 1 + workers, "forkserver": 5}[start_method]


def always_a_process(start_method, workers, batches):
    return 1 if start_method == "fork" else 1 + max(1, workers)


def package(name, source, folder):
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "__init__.py"), "w") as file:
        file.write(source)
    sys.path.append(folder)
    return __import__(name)


def by_spec(name, source, folder):
    path = os.path.join(folder, name + ".py")
    with open(path, "w") as file:
        file.write(source)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def only_in_memory(name, source, folder):
    module = sys.modules[name] = types.ModuleType(name)
    exec(source, vars(module))
    return module


def unregistered(name, source, folder):
    module = types.ModuleType(name)
    exec(source, vars(module))
    return module


def without_the_path(name, source, folder):
    path = os.path.join(folder, name + ".py")
    with open(path, "w") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def under_another_name(name, source, folder):
    with open(os.path.join(folder, "my_" + name + ".py"), "w") as file:
        file.write(source)
    sys.path.insert(0, folder)
    return importlib.import_module("my_" + name)


def returns_the_name(name, source, folder):
    by_spec(name, source, folder)
    return name


class ByForkHandler:
    def __init__(self):
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self):
        self.lock = threading.Lock()

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


class ByProcess:
    def __init__(self):
        self.locks = {}

    def mine(self):
        return self.locks.setdefault(os.getpid(), threading.RLock())

    def __enter__(self):
        return self.mine().__enter__()

    def __exit__(self, *error):
        self.mine().__exit__(*error)


class Plain:
    def __init__(self):
        self.lock = threading.Lock()

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


class SharedByProcesses(Plain):
    def __init__(self):
        self.lock = multiprocessing.Lock()


class NewEachTime:
    def __enter__(self):
        self.lock = threading.Lock()
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


class NoneInTheChild(Plain):
    def __init__(self):
        super().__init__()
        self.pid = os.getpid()

    def __enter__(self):
        if os.getpid() == self.pid:
            self.lock.acquire()

    def __exit__(self, *error):
        if os.getpid() == self.pid:
            self.lock.release()


class NeverReleased(Plain):
    def __exit__(self, *error):
        pass


RIGHT = {
    "02.print_count": [by_table, by_summing],
    "02.importable": [package, by_spec],
    "02.fork_safe": [ByForkHandler, ByProcess],
}
WRONG = {
    "02.print_count": [
        (once_a_batch, "It is not once a batch"),
        (as_under_fork, "A spawned worker is a fresh interpreter"),
        (as_under_spawn, "A forked worker goes on"),
        (without_the_main_process, "the main process imports the module, too"),
        (server_imports, "The server was started fresh"),
        (always_a_process, "Without workers there is one process"),
    ],
    "02.importable": [
        (only_in_memory, "knows nothing of this one's memory"),
        (unregistered, "PicklingError"),
        (without_the_path, "does not know where"),
        (under_another_name, "Let Python import"),
        (returns_the_name, "Return the module"),
    ],
    "02.fork_safe": [
        (Plain, "The fork copied the lock as it was"),
        (NewEachTime, "must get the same lock"),
        (NoneInTheChild, "The child's threads need a lock"),
    ],
}
# They fail by a time limit: with the seconds that the check gets.
SLOWLY_WRONG = {"02.fork_safe": [(SharedByProcesses, 20), (NeverReleased, 1)]}
