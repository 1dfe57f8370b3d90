"""A memory control group for one child process, version 1 or 2."""

import os
import time

ROOT_HINT = "run as root (sudo make bench-peers ...), or where the memory controller is delegated to you"


class Refused(Exception):
    """The machine does not let us make the group. args: what, hint."""


def _read(path):
    with open(path) as f:
        return f.read().strip()


def _write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


def _own(proc, controller):
    """Our group's path in the hierarchy of a controller; "" is version 2's."""
    for line in _read(os.path.join(proc, "self/cgroup")).splitlines():
        number, names, path = line.split(":", 2)
        if names == controller == "" and number == "0" or controller and controller in names.split(","):
            return path
    return "/"


def find(proc="/proc"):
    """(version, folder to make a group in). The group is made below our own, so that limits above stay in force."""
    mounts = [line.split() for line in _read(os.path.join(proc, "mounts")).splitlines()]
    for _, at, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            own = os.path.normpath(at + "/" + _own(proc, "memory"))
            return 1, own if os.path.isdir(own) else at
    for _, at, kind, *_ in mounts:
        if kind != "cgroup2":
            continue
        own = os.path.normpath(at + "/" + _own(proc, ""))
        for parent in [own] if own == at else [own, at]:
            try:
                if "memory" in _read(os.path.join(parent, "cgroup.controllers")).split():
                    return 2, parent
            except OSError:
                continue
    raise Refused("no memory control group is mounted", "mount one: mount -t cgroup2 none /sys/fs/cgroup")


class Group:
    """Made with a limit in bytes; enter() is for the child before exec; close() removes it."""

    def __init__(self, limit, proc="/proc"):
        self.version, parent = find(proc)
        self.path = os.path.join(parent, "peers-%d-%d" % (os.getpid(), time.monotonic_ns()))
        if self.version == 2:
            self._delegate(parent)
        try:
            os.mkdir(self.path)
        except OSError as e:
            raise Refused("%s: no control group can be made here: %s" % (parent, e.strerror), ROOT_HINT)
        try:
            if self.version == 1:
                _write(self._at("memory.limit_in_bytes"), limit)
                self._maybe("memory.swappiness", 0)
                self._maybe("memory.memsw.limit_in_bytes", limit)
            else:
                _write(self._at("memory.max"), limit)
                self._maybe("memory.swap.max", 0)
        except OSError as e:
            self.close()
            raise Refused("%s: the limit cannot be set: %s" % (self.path, e.strerror), ROOT_HINT)

    @staticmethod
    def _delegate(parent):
        control = os.path.join(parent, "cgroup.subtree_control")
        try:
            if "memory" not in _read(control).split():
                _write(control, "+memory")
        except OSError as e:
            raise Refused("%s: the memory controller cannot be passed on to a group below: %s" % (control, e.strerror),
                          ROOT_HINT + "; a group that holds processes cannot: move them into a group below it first")

    def _at(self, name):
        return os.path.join(self.path, name)

    def _maybe(self, name, value):
        """For files that not every kernel has: no swap, or none that is counted."""
        try:
            if os.path.exists(self._at(name)):
                _write(self._at(name), value)
        except OSError:
            pass

    def enter(self):
        """Moves this process in: what it and its threads touch from now on is charged here."""
        _write(self._at("cgroup.procs"), os.getpid())

    def peak(self):
        """The most that was charged, page cache included; None where the kernel does not say."""
        try:
            return int(_read(self._at("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")))
        except OSError:
            return None

    def anonymous(self):
        """What is charged now for memory that is no page cache; None where the kernel does not say."""
        key = "total_rss" if self.version == 1 else "anon"
        try:
            text = _read(self._at("memory.stat"))
        except OSError:
            return None
        return next((int(w[1]) for w in map(str.split, text.splitlines()) if w[0] == key), None)

    def killed(self):
        """How many processes the kernel ended because the limit left them nothing."""
        try:
            text = _read(self._at("memory.oom_control" if self.version == 1 else "memory.events"))
        except OSError:
            return 0
        return sum(int(w[1]) for w in map(str.split, text.splitlines()) if w[0] == "oom_kill")

    def close(self):
        """Removes the group. Its processes have ended; the kernel may take a moment to notice."""
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)
