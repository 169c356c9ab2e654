"""`lockstep plan` and `lockstep tune` as a user runs them."""

import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

LOCKSTEP = os.environ["LOCKSTEP"]
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
PICTURES = {
    "plan-all_reduce-doubling.svg":
        "all_reduce --algorithm doubling --ranks 8 --bytes 4K",
    "plan-all_reduce-hierarchical.svg":
        "all_reduce --algorithm hierarchical --ranks 4 --hosts 2 --bytes 64K",
    "plan-broadcast-tree.svg":
        "broadcast --algorithm tree --ranks 8 --bytes 1M",
}


def lockstep(arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "LOCKSTEP_TUNING"}
    environment.update(variables)
    return subprocess.run([LOCKSTEP] + arguments.split(), capture_output=True, text=True,
                          timeout=200, env=environment, check=False)


def answer(arguments, **variables):
    done = lockstep(arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


class PlanTest(unittest.TestCase):
    def test_shows_candidates_steps_proof_and_time(self):
        text = answer("plan all_reduce --ranks 8 --bytes 64K")
        for expected in ("one pass over memory", "each rank on a host of its own",
                         "rank 0 of 8: 3 steps", "predicted time", "checked: 8 ranks"):
            self.assertIn(expected, text)

    def test_json(self):
        found = json.loads(answer("plan broadcast --ranks 8 --hosts 8 --bytes 1M --root 3 --rank 3 --json"))
        self.assertEqual(found["algorithm"], found["chosen"]["each rank on a host of its own"])
        self.assertTrue(found["checked"]["correct"])
        self.assertEqual(found["predicted_how"], "simulated")
        self.assertGreater(found["predicted_us"], 0)
        self.assertTrue(all(step["kind"] == "send" for step in found["steps"] if "peer" in step))

    def test_what_makes_no_sense_is_refused(self):
        for arguments, expected in {
                "all_rduce --ranks 2 --bytes 4": "did you mean all_reduce",
                "all_reduce --ranks 6 --bytes 4 --algorithm halving": "power of two",
                "all_reduce --ranks 6 --bytes 4 --algorithm best": "arena, staged",
                "all_reduce --ranks 6 --bytes 4 --hosts 7": "--hosts 7",
                "all_reduce --ranks 6 --bytes 4 --hosts 2 --algorithm arena": "one host",
                "all_reduce --ranks 6 --bytes 5": "multiple",
                "all_reduce --ranks 6 --bytes 4 --root 0": "no root",
                "all_reduce --ranks 6 --bytes 4x": "--bytes 4x",
                "all_reduce --ranks 0 --bytes 4": "--ranks 0",
                "all_reduce --bytes 4": "--ranks",
                "all_reduce --ranks 2": "--bytes",
                "broadcast --ranks 6 --bytes 4 --root 6": "--root 6",
                "broadcast --ranks 6 --bytes 4 --rank 6": "--rank 6",
                "send --ranks 3 --bytes 4": "between 2 ranks",
                "reduce_scatter --ranks 4096 --bytes 64M --algorithm staged": "million steps",
                "": "no operation"}.items():
            done = lockstep("plan " + arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(expected, done.stderr, arguments)

    def test_4096_ranks(self):
        for operation in ("all_reduce", "all_to_all", "broadcast"):
            self.assertIn("4096 ranks", answer(f"plan {operation} --ranks 4096 --bytes 4K --no-check"))

    def test_the_page_and_its_pictures_are_up_to_date(self):
        with open(os.path.join(DOCS, "algorithms.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), answer("plan --table"),
                             "renew it: lockstep plan --table > docs/algorithms.md")
        with tempfile.TemporaryDirectory() as folder:
            for name, arguments in PICTURES.items():
                drawn = os.path.join(folder, name)
                answer(f"plan {arguments} --svg {drawn}")
                xml.etree.ElementTree.parse(drawn)
                with open(drawn, encoding="utf-8") as new, \
                        open(os.path.join(DOCS, name), encoding="utf-8") as old:
                    self.assertEqual(old.read(), new.read(),
                                     f"renew it: lockstep plan {arguments} --svg docs/{name}")


class TuneTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "prices.json")

    def test_measures_and_is_read_back(self):
        answer(f"tune --out {self.file}")
        with open(self.file, encoding="utf-8") as file:
            prices = json.load(file)
        for name in ("latency_us", "byte_us", "reduced_byte_us", "copied_byte_us", "barrier_us"):
            self.assertGreater(prices[name], 0, name)
        question = "plan all_reduce --ranks 8 --bytes 4M --hosts 8 --json"
        tuned = json.loads(answer(question, LOCKSTEP_TUNING=self.file))
        self.assertNotEqual(tuned["predicted_us"], json.loads(answer(question))["predicted_us"])
        self.assertEqual(tuned, json.loads(answer(question + f" --tuning {self.file}")))

    def write(self, **changes):
        prices = {"latency_us": 15, "message_us": 3, "byte_us": 0.0005, "reduced_byte_us": 0.0001,
                  "copied_byte_us": 0.0001, "barrier_us": 0.5}
        prices.update(changes)
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump({k: v for k, v in prices.items() if v is not None}, file)

    def test_prices_change_the_choice(self):
        question = "plan all_reduce --ranks 8 --bytes 16M --hosts 8 --no-check --json"
        self.write(message_us=0.001)
        self.assertEqual(json.loads(answer(question, LOCKSTEP_TUNING=self.file))["algorithm"], "direct")
        self.write(message_us=100_000)
        self.assertEqual(json.loads(answer(question, LOCKSTEP_TUNING=self.file))["algorithm"], "doubling")

    def test_a_bad_file_is_named_with_its_key(self):
        question = "plan all_reduce --ranks 8 --bytes 16M"
        for changes, expected in ((dict(latency_us=-1), "'latency_us' is -1"),
                                  (dict(byte_us=None), "'byte_us' is missing"),
                                  (dict(barrier_us="x"), "'barrier_us'"),
                                  (dict(colour=1), "'colour' is no price")):
            self.write(**changes)
            done = lockstep(question, LOCKSTEP_TUNING=self.file)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"LOCKSTEP_TUNING='{self.file}'", done.stderr)
            self.assertIn(expected, done.stderr)
        done = lockstep(question, LOCKSTEP_TUNING="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()
