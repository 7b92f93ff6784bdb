"""A chat model: questions in, texts out. A transcript keeps every answer and can replace the model.

What comes back is a stranger's text: it is stored and read (`magellan.samplers.proposals`), never
executed and never a path. Address and key of a server come from the environment and go nowhere
else: not into configurations, transcripts, errors or logs.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from magellan.core.errors import InputError, JobError, shown
from magellan.core.files import append_line
from magellan.core.settings import Positive, Section
from magellan.model.files import check_backbone, check_planned_backbone

URL, KEY = "MAGELLAN_CHAT_URL", "MAGELLAN_CHAT_KEY"
WORLD, SCRIPTED, SERVER = "world", "scripted", "server/"
NAME, JUDGED = "transcript.jsonl", "evaluator.jsonl"
"""Transcripts in the folder of a run: what chooses goals was asked, and what judges episodes."""
LARGEST, LONGEST = 2**20, 4_000
"""Bytes that a server may send, and characters of an answer that are kept."""
PAUSE = 1.0
"""Seconds before the first retry, doubled before each further one."""

Message = Mapping[str, str]


class ChatSettings(Section):
    """The chat model that answers."""

    operational = ("transcript", "timeout", "retries", "on_failure")

    model: str = Field(
        SCRIPTED,
        min_length=1,
        description="Chat model: `scripted`, a rule that answers the same questions; a name or "
        "folder as for `backbone.model`; or `server/NAME`, the model NAME of the OpenAI-compatible "
        f"address in the environment's {URL}, with the key in {KEY}, if it needs one.",
    )
    transcript: str = Field(
        "", description="Transcript whose answers are taken; others are asked for."
    )
    tokens: int = Field(48, ge=1, le=4_096, description="Maximum tokens of an answer.")
    timeout: Positive = Field(60.0, description="Seconds for an answer.")
    retries: int = Field(2, ge=0, le=100, description="Further tries if the server fails.")
    on_failure: Literal["keep", "stop"] = Field(
        "keep", description="When it fails: the last proposals go on, or the run stops."
    )


class ChatFailed(Exception):
    """No answer; the text names neither address nor key."""


class Chat:
    """Answers questions by transcript, rule, local model or server.

    settings: which model, and how.
    section: of the settings, for errors.
    rule: the scripted model, from the last message to an answer.
    transcript: file of this run, created at the first question; None: kept in memory only.

    Attributes:
        entries: questions of this transcript in order, as values of JSON.

    Raises:
        InputError: the transcript cannot be read, or the model is missing.
    """

    def __init__(
        self,
        settings: ChatSettings,
        section: str,
        rule: Callable[[str], str],
        transcript: Path | None = None,
    ) -> None:
        self._settings, self._section, self._path = settings, section, transcript
        self._local: Any = None
        self._rule = rule
        self.entries: list[dict[str, Any]] = []
        self._known: dict[str, dict[str, Any]] = {}
        check_chat(settings, section)
        if settings.transcript:
            self._known |= {_key(e): e for e in read_transcript(Path(settings.transcript), section)}
        if transcript is not None and transcript.is_file():
            self.entries = read_transcript(transcript, section)
        self._written = {_key(entry): entry for entry in self.entries}
        self._known |= self._written

    def ask(self, update: int, messages: Sequence[Message]) -> tuple[str | None, dict[str, Any]]:
        """Return the answer, None if there is none, and the entry, which `record` writes.

        Answers that a transcript has for this update and these messages are not asked for again.

        Raises:
            JobError: there is none, and `on_failure` is `stop`.
        """
        entry: dict[str, Any] = {"update": update, "model": self._settings.model}
        entry["messages"] = [dict(message) for message in messages]
        known = self._known.get(_key(entry))
        if known is not None:
            entry |= {key: known[key] for key in ("answer", "failures", "tokens", "seconds")}
        else:
            entry |= self._answer(messages)
        if entry["answer"] is None and self._settings.on_failure == "stop":
            raise JobError(f"{self._section}.model: no answer ({', '.join(entry['failures'])})")
        return entry["answer"], entry

    def record(self, entry: dict[str, Any]) -> None:
        """Append an entry to the transcript, unless an earlier attempt of the run did."""
        key = _key(entry)
        if key not in self._written:
            self.entries.append(entry)
            self._known[key] = self._written[key] = entry
            if self._path is not None:
                append_line(self._path, json.dumps(entry))

    def summary(self) -> dict[str, Any]:
        """Return what the questions cost: number, failures, tokens read and written, seconds."""
        tokens = [sum(entry["tokens"][i] for entry in self.entries) for i in (0, 1)]
        return {
            "questions": len(self.entries),
            "failures": sum(len(entry["failures"]) for entry in self.entries),
            "tokens": tokens,
            "seconds": round(sum(entry["seconds"] for entry in self.entries), 1),
        }

    def _answer(self, messages: Sequence[Message]) -> dict[str, Any]:
        if self._settings.model == SCRIPTED:
            text = self._rule(messages[-1]["content"])[:LONGEST]
            return {"answer": text, "failures": [], "tokens": [0, 0], "seconds": 0.0}
        begun, failures = time.monotonic(), []
        ask = self._ask_server if self._settings.model.startswith(SERVER) else self._ask_local
        answer, tokens = None, [0, 0]
        for attempt in range(self._settings.retries + 1):
            if attempt:
                time.sleep(PAUSE * 2 ** min(attempt - 1, 5))
            try:
                answer, tokens = ask(messages)
                break
            except ChatFailed as error:
                failures.append(str(error))
        seconds = round(time.monotonic() - begun, 2)
        return {"answer": answer, "failures": failures, "tokens": tokens, "seconds": seconds}

    def _ask_local(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        from magellan.model.loading import ChatModel

        with _named(f"{self._section}.model"):
            self._local = self._local or ChatModel(self._settings.model)
            text, tokens = self._local.answer(messages, self._settings.tokens)
        return text[:LONGEST], tokens

    def _ask_server(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """One POST to `/chat/completions`; redirects, which would take the key along, fail."""
        url, key = os.environ.get(URL, ""), os.environ.get(KEY, "")
        model = self._settings.model.removeprefix(SERVER)
        body = {"model": model, "messages": [*messages], "temperature": 0}
        content = json.dumps({**body, "max_tokens": self._settings.tokens}).encode()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        try:
            request = urllib.request.Request(
                f"{url.rstrip('/')}/chat/completions", content, headers
            )
            reply = json.loads(_received(request, self._settings.timeout))
            text = reply["choices"][0]["message"]["content"] or ""
            usage = reply.get("usage") or {}
            tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
        except urllib.error.HTTPError as error:
            raise ChatFailed(f"HTTP {error.code}") from None
        except TimeoutError:
            raise ChatFailed("too slow") from None
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            slow = isinstance(getattr(error, "reason", None), TimeoutError)
            raise ChatFailed("too slow" if slow else type(error).__name__) from None
        if not isinstance(text, str):
            raise ChatFailed("no text")
        for secret in filter(None, (key, url)):  # a server could send them back
            text = text.replace(secret, "***")
        return text[:LONGEST], tokens


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


def _received(request: urllib.request.Request, seconds: float) -> bytes:
    """The body of a reply, all of it within so many seconds."""
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as response:
        while part := response.read1(65_536):
            parts.append(part)
            if time.monotonic() > end:
                raise TimeoutError
            if sum(map(len, parts)) > LARGEST:
                raise ValueError
    return b"".join(parts)


def check_chat(settings: ChatSettings, section: str, planned: bool = False) -> None:
    """Check that what answers is there; with `planned` the workflow may still have to make it.

    Raises:
        InputError: model or transcript is missing, or a server has no address.
    """
    name, key = settings.model, f"{section}.model"
    if settings.transcript:
        read_transcript(Path(settings.transcript), section)
    elif name.startswith(SERVER):
        if not os.environ.get(URL, "").startswith(("http://", "https://")):
            raise InputError(f"{key}: {shown(name)} needs an http(s) address in {URL}")
    elif name != SCRIPTED:
        with _named(key):
            (check_planned_backbone if planned else check_backbone)(name)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Errors of a model name this key."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("backbone.model", key)) from error


def _key(entry: Mapping[str, Any]) -> str:
    """What an answer depends on."""
    return json.dumps([entry["update"], entry["model"], entry["messages"]])


def read_transcript(path: Path, section: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript; a last line that a kill cut short is left out.

    Raises:
        InputError: it cannot be read, or another line is no entry.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        raise InputError(
            f"{section}.transcript: {path} cannot be read; allowed: a run's {NAME}"
        ) from None
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
            if not line.strip() or line.startswith("{"):  # cut short
                continue
        if _is_entry(entry):
            entries.append(entry)
        else:
            raise InputError(
                f"{section}.transcript: line {number} of {path} is no entry; allowed: {NAME} of a "
                "run"
            )
    return entries


def _is_entry(entry: Any) -> bool:
    try:
        _key(entry)
        valid = isinstance(entry["answer"], str | None) and entry["seconds"] >= 0
        valid &= [type(number) for number in entry["tokens"]] == [int, int]
        return valid and isinstance(entry["failures"], list)
    except (LookupError, TypeError):
        return False
