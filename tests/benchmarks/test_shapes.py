"""The random model of the released code's timings."""

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from benchmarks.shapes import model_folder
from magellan.worlds.little_zoo import GoalSpace


def test_t5_has_the_size_and_the_words_of_the_released_timing():
    with model_folder("t5") as folder:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) == 206_080
    assert len(tokenizer) == model.config.vocab_size == 66
    goals = GoalSpace.draw((20, 20, 20, 20, 20), seed=0)
    prompts = [goals.prompt(i, i % 5 - 1) for i in range(len(goals))]
    words = tokenizer([*prompts, "Release all", "Go to carrot seed"], add_special_tokens=False)
    assert not {tokenizer.unk_token_id} & {token for ids in words["input_ids"] for token in ids}
