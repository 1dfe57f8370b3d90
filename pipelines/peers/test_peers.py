"""Tests of what runs without llama.cpp, nprun and root."""

import argparse
import os
import tempfile
import unittest

import cgroup
import peers


class Tree:
    """A made-up /proc and control groups as plain files."""

    def __init__(self, test, version):
        self.dir = tempfile.TemporaryDirectory()
        test.addCleanup(self.dir.cleanup)
        self.proc, self.cg = os.path.join(self.dir.name, "proc"), os.path.join(self.dir.name, "cg")
        self.own = os.path.join(self.cg, "own")
        os.makedirs(os.path.join(self.proc, "self"))
        os.makedirs(self.own)
        mount = "cgroup %s cgroup rw,memory 0 0" if version == 1 else "cgroup2 %s cgroup2 rw 0 0"
        self.write(self.proc, "mounts", "proc /proc proc rw 0 0\n" + mount % self.cg + "\n")
        self.write(self.proc, "self/cgroup", "5:cpu:/other\n4:memory:/own\n0::/own\n")
        for at in (self.cg, self.own):
            self.write(at, "cgroup.controllers", "cpu memory\n")
            self.write(at, "cgroup.subtree_control", "cpu\n")

    def write(self, at, name, text):
        with open(os.path.join(at, name), "w") as f:
            f.write(text)

    def read(self, at, name):
        with open(os.path.join(at, name)) as f:
            return f.read()


class Groups(unittest.TestCase):
    def test_version_1(self):
        t = Tree(self, 1)
        g = cgroup.Group(123456, proc=t.proc)
        self.assertEqual((g.version, os.path.dirname(g.path)), (1, t.own))
        self.assertEqual(t.read(g.path, "memory.limit_in_bytes"), "123456")
        g.enter()
        self.assertEqual(t.read(g.path, "cgroup.procs"), str(os.getpid()))
        self.assertIsNone(g.peak())
        t.write(g.path, "memory.max_usage_in_bytes", "777\n")
        t.write(g.path, "memory.stat", "cache 5\nrss 1\ntotal_cache 6\ntotal_rss 42\n")
        t.write(g.path, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
        self.assertEqual((g.peak(), g.anonymous(), g.killed()), (777, 42, 1))

    def test_version_2(self):
        t = Tree(self, 2)
        g = cgroup.Group(1 << 30, proc=t.proc)
        self.assertEqual((g.version, os.path.dirname(g.path)), (2, t.own))
        self.assertEqual(t.read(t.own, "cgroup.subtree_control"), "+memory")
        self.assertEqual(t.read(g.path, "memory.max"), str(1 << 30))
        t.write(g.path, "memory.peak", "777\n")
        t.write(g.path, "memory.stat", "anon 42\nfile 7\n")
        t.write(g.path, "memory.events", "low 0\noom 2\noom_kill 2\n")
        self.assertEqual((g.peak(), g.anonymous(), g.killed()), (777, 42, 2))

    def test_close(self):
        t = Tree(self, 1)
        g = cgroup.Group(5, proc=t.proc)
        for name in os.listdir(g.path):  # the kernel's files are no obstacle to rmdir, these are
            os.remove(os.path.join(g.path, name))
        g.close()
        self.assertFalse(os.path.exists(g.path))
        g.close()

    def test_refused(self):
        t = Tree(self, 2)
        t.write(t.proc, "mounts", "proc /proc proc rw 0 0\n")
        with self.assertRaisesRegex(cgroup.Refused, "no memory control group"):
            cgroup.Group(5, proc=t.proc)
        t = Tree(self, 1)
        t.write(t.proc, "self/cgroup", "4:memory:/gone\n")
        self.assertEqual(cgroup.find(t.proc), (1, t.cg))
        t = Tree(self, 2)
        os.remove(os.path.join(t.own, "cgroup.subtree_control"))
        os.mkdir(os.path.join(t.own, "cgroup.subtree_control"))  # cannot be read as a file
        with self.assertRaises(cgroup.Refused) as e:
            cgroup.Group(5, proc=t.proc)
        self.assertIn("cannot be passed on", e.exception.args[0])
        self.assertIn("root", e.exception.args[1])


class Words(unittest.TestCase):
    def test_size(self):
        for text, want in {"9GiB": 9 << 30, "1.5GiB": 3 << 29, "512mib": 512 << 20, "100": 100, "2 GB": 2 * 10**9}.items():
            self.assertEqual(peers.size(text), want)
        for text in ("", "GiB", "-1GiB", "1.2.3GiB", "9PiB", "0"):
            with self.assertRaises(argparse.ArgumentTypeError):
                peers.size(text)

    def test_per_side(self):
        self.assertEqual(peers.per_side("3"), {"sparse": 3, "stream": 3, "llama": 3})
        self.assertEqual(peers.per_side("sparse=32,stream=4,llama=1")["stream"], 4)
        for text in ("sparse=3", "x", "sparse=3,stream=4,llama=-1", "sparse=3,stream=4,llama=5,other=6"):
            with self.assertRaises(argparse.ArgumentTypeError):
                peers.per_side(text)

    def test_numbers(self):
        self.assertEqual(peers.same_tokens([1, 2, 3], [1, 2, 4]), 2)
        self.assertEqual(peers.same_tokens([1, 2], [1, 2]), 2)
        rounds = [{"a": {"v": 2}, "b": {"v": 1}}, {"a": {"v": 9}, "b": {"v": 3}}, {"a": {"v": 8}, "b": {"v": 1}}]
        self.assertEqual(peers.ratios(rounds, "a", "b", lambda x: x["v"]), [2, 3, 8])
        self.assertEqual(peers.spread([8, 2, 3]), "3 (2–8)")
        self.assertEqual(peers.median(rounds, "a", lambda x: x["v"]), 8)
        self.assertEqual([peers.human(n) for n in (None, -1, 5, 1536, 3 << 29)], ["?", "?", "5 B", "1.5 KiB", "1.5 GiB"])

    def test_turns(self):
        order = []
        sides = {s: (lambda s=s: order.append(s)) for s in "abc"}
        for i in range(2):
            peers.in_turn(i, sides)
        self.assertEqual(order, list("abccba"))

    def test_budget(self):
        self.assertLess(peers.budget(9 << 30), 9 << 30)


if __name__ == "__main__":
    unittest.main()
