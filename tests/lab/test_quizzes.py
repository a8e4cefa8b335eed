"""Quizzes: what makes a question a good one, the form, the text and the HTML; and some facts."""

import importlib
import os
import re
import sys
import threading
from html.parser import HTMLParser

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

import labkit
from labkit.lab import MissingPackage, quiz
from labkit.lab.exercises.counting import counted_prints
from labkit.lab.quizzes import all_numbers
from labkit.lab.quizzes.form import QuizForm

QUESTIONS = [
    pytest.param(question, id=f"{number}-{i}")
    for number in all_numbers()
    for i, question in enumerate(quiz(number).questions, 1)
]
every_quiz = pytest.mark.parametrize("number", all_numbers())
every_question = pytest.mark.parametrize("question", QUESTIONS)


# The questions


@every_quiz
def test_a_quiz_has_3_to_5_questions(number):
    assert 3 <= len(quiz(number).questions) <= 5


@every_question
def test_exactly_one_option_is_right_and_each_is_explained_in_its_own_words(question):
    assert sum(option.right for option in question.options) == 1
    assert 3 <= len(question.options) <= 4
    assert len({option.text for option in question.options}) == len(question.options)
    reasons = [option.because for option in question.options]
    assert len(set(reasons)) == len(reasons)
    assert all(len(reason.split()) >= 4 for reason in reasons)
    assert all(reason.endswith(".") for reason in reasons)
    assert all(not reason[0].islower() or reason.startswith("s ") for reason in reasons)


def test_no_explanation_and_no_question_is_there_twice():
    questions = [param.values[0] for param in QUESTIONS]
    reasons = [option.because for question in questions for option in question.options]
    assert len(set(reasons)) == len(reasons)
    assert len({question.text for question in questions}) == len(questions)


@every_question
def test_backticks_come_in_pairs(question):
    texts = [question.text, *(x for o in question.options for x in (o.text, o.because))]
    assert all(text.count("`") % 2 == 0 for text in texts)


@every_quiz
def test_the_right_option_is_not_always_in_the_same_place(number):
    places = {[o.right for o in q.options].index(True) for q in quiz(number).questions}
    assert len(places) > 1


def test_an_unknown_number_is_an_error_that_names_those_there_are():
    with pytest.raises(ValueError, match=r"no quiz '3'. There are: '00', '01', '02', '03'"):
        quiz("3")


# As text


@every_quiz
def test_the_text_has_every_question_and_option_and_gives_no_answer_away(number):
    text = repr(quiz(number))
    for question in quiz(number).questions:
        assert question.text in text
        for option in question.options:
            assert f") {option.text}\n" in text
            assert option.because not in text


def test_answering_in_text_gives_the_option_s_own_verdict():
    assert quiz("01").choose(1, "c") == "Right. 15 full batches an epoch, three times."
    assert quiz("01").choose(1, "a").startswith("Not so. ")
    with pytest.raises(ValueError, match="questions 1 to 4, not 5"):
        quiz("01").choose(5, "a")
    with pytest.raises(ValueError, match="options a, b, c"):
        quiz("01").choose(1, "d")
    with pytest.raises(ValueError, match="options a, b, c"):
        quiz("01").choose(1, "ab")


# As HTML without a kernel


class Balanced(HTMLParser):
    """Collects what is open; fails at an end tag that does not fit."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@every_quiz
def test_the_html_unfolds_each_option_and_needs_no_script(number):
    html = quiz(number).as_html()
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    options = sum(len(question.options) for question in quiz(number).questions)
    assert parser.seen.count("details") == parser.seen.count("summary") == options
    assert "script" not in parser.seen
    assert not re.search(r"https?:|src=", html)
    assert "`" not in html


def test_without_ipywidgets_html_and_text_remain(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "labkit.lab.quizzes.form")
    with pytest.raises(MissingPackage):
        importlib.import_module("labkit.lab.quizzes.form")
    assert quiz("00")._repr_mimebundle_().keys() == {"text/html", "text/plain"}


def test_the_bundle_has_widgets_html_and_a_text_that_is_always_the_same():
    first, second = (quiz("02")._repr_mimebundle_() for _ in range(2))
    assert "application/vnd.jupyter.widget-view+json" in first
    assert first["text/html"] == second["text/html"]
    assert first["text/plain"] == second["text/plain"] == repr(quiz("02"))


# As a form


@every_quiz
def test_clicking_check_gives_the_verdict_on_the_chosen_option(number):
    form = QuizForm(quiz(number))
    for asked, shown in zip(quiz(number).questions, form.questions, strict=True):
        for index, option in enumerate(asked.options):
            shown.choice.index = index
            shown.check.click()
            assert 'role="status"' in shown.status.value
            words = re.sub(r"<[^>]+>", "", shown.status.value)
            assert words.startswith("✓ Right. " if option.right else "✗ Not so. ")


def test_nothing_is_chosen_at_first_and_check_then_asks_for_a_choice():
    question = QuizForm(quiz("00")).questions[0]
    assert question.choice.index is None
    question.check.click()
    assert "Choose an answer first." in question.status.value


def test_a_verdict_goes_when_another_option_is_chosen():
    question = QuizForm(quiz("00")).questions[0]
    question.choice.index = 0
    question.check.click()
    assert "Not so" in question.status.value
    question.choice.index = 1
    assert "Not so" not in question.status.value
    assert 'role="status"' in question.status.value


def test_every_control_has_a_label_of_its_own():
    form = QuizForm(quiz("03"))
    labels = [x.description for q in form.questions for x in (q.choice, q.check)]
    assert all(labels)
    assert len(set(labels)) == len(labels)


# What the quizzes claim, tried


class Ten(IterableDataset):
    """Ten samples, for each worker the same."""

    def __iter__(self):
        return iter(range(10))


class Told(IterableDataset):
    """Says what torch was seeded with, and how often the process has asked for an epoch."""

    epochs = 0

    def __iter__(self):
        self.epochs += 1
        yield get_worker_info().id, torch.initial_seed(), self.epochs, os.getpid()


class Noted:
    """A sampler that notes how many tasks of one index were taken from it."""

    def __init__(self):
        self.taken = 0

    def __iter__(self):
        for index in range(100):
            self.taken += 1
            yield index


def right_option(number, question):
    return next(o.text for o in quiz(number).questions[question - 1].options if o.right)


def test_01_iterations():
    n = 3 * len(labkit.DataLoader(range(1000), batch_size=64, drop_last=True))
    assert right_option("01", 1) == str(n)


def test_02_prints():
    found = counted_prints((("spawn", 3, 30),))
    assert right_option("02", 1) == f"{found['spawn', 3, 30]} times"


def test_02_a_forked_worker_changes_its_own_copy_and_gets_a_held_lock_held():
    class Keeping:
        def __init__(self):
            self.seen, self.lock = [], threading.Lock()

        def __len__(self):
            return 4

        def __getitem__(self, index):
            self.seen.append(index)
            return self.lock.locked()

    dataset = Keeping()
    with dataset.lock:
        batches = list(labkit.DataLoader(dataset, num_workers=1, multiprocessing_context="fork"))
    assert torch.cat(batches).all()
    assert dataset.seen == []


@pytest.mark.filterwarnings("ignore:2 workers iterated over an IterableDataset")
@pytest.mark.parametrize("loader_class", [labkit.DataLoader, torch.utils.data.DataLoader])
def test_03_tasks_in_flight_and_samples_without_shards(loader_class):
    settings = {"num_workers": 2, "multiprocessing_context": "fork"}
    sampler = Noted()
    batches = iter(loader_class(range(100), sampler=sampler, prefetch_factor=3, **settings))
    assert right_option("03", 1) == str(sampler.taken)
    del batches
    samples = list(loader_class(Ten(), batch_size=None, **settings))
    assert right_option("03", 3) == str(len(samples))


def test_03_seeds_and_persistent_workers():
    loader = labkit.DataLoader(
        Told(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    (_, seed, _, pid), (_, next_seed, _, _) = sorted(loader)
    assert next_seed == seed + 1
    (_, _, epochs, same_pid), _ = sorted(loader)
    assert (epochs, same_pid) == (2, pid)
    del loader


def test_00_files_that_stay_open():
    def opened(strategy):
        before = len(os.listdir("/proc/self/fd"))
        settings = {"num_workers": 1, "multiprocessing_context": "fork"}
        data = [torch.ones(2)] * 40
        kept = list(labkit.DataLoader(data, sharing_strategy=strategy, **settings))
        return len(os.listdir("/proc/self/fd")) - before, kept

    counts = {s: opened(s)[0] for s in ("file_descriptor", "file_system", "arena")}
    assert counts["file_descriptor"] >= 40
    assert max(counts["file_system"], counts["arena"]) < 10
