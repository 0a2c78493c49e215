"""What a person reads of an operation of the judge's protocol."""

from kernelwright.judge import channel
from kernelwright.probe.judge_worker import Worker
from kernelwright.probe.screen import Screen


def test_what_a_process_was_at_is_said_in_words():
    operations = {name.removeprefix("op_") for name in (*dir(Worker), *dir(Screen)) if name.startswith("op_")}
    assert {operation: words for operation, words in channel._WORDS.items() if operation not in operations} == {}
    assert channel._words("prepare") == "build and first calls"
    assert channel._words("export") == "copying of outputs" and channel._words("time_single") == "timed calls"
    assert channel._words("take_inputs") == "take inputs", "the others are words as they are"
