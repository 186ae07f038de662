"""The faults a run can inject. Each picks its victim by the run's random numbers, and says when it is over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import psutil
import redis

from tests.lab.torture.clients import AGAIN_S, Client
from tests.lab.torture.cluster import Cluster, Member
from tests.lab.torture.links import LinkError, Links

AWAY_S = 5.0
"""How long a server is away: longer than a lease of the run."""
FULL_S = 3.0
BEYOND_LEASE_S = 1.5
RESUME_S = 60.0
"""How long it is tried to give a drained node work again."""
STEP_S = 3600.0
"""How far a clock steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault as it was injected. Times are seconds of the monotonic clock."""

    kind: str
    victim: str
    at: float
    over: float
    """From here on the platform is expected to mend itself."""


class NoVictim(Exception):
    """There is nobody to inject this fault into right now."""


@dataclass(slots=True)
class Injector:
    """Injects faults into one cluster."""

    cluster: Cluster
    rng: random.Random

    def inject(self, kind: str) -> Injected:
        """Inject one fault and return when it is over; raises :class:`NoVictim`."""
        at = time.monotonic()
        action, from_end = FAULTS[kind]
        victim = action(self)
        return Injected(kind=kind, victim=victim, at=at, over=time.monotonic() if from_end else at)

    def member(self, role: str) -> Member:
        """One living member of a role."""
        found = self.cluster.of(role)
        if not found:
            raise NoVictim(role)
        return self.rng.choice(found)

    def linked(self) -> tuple[Member, Links]:
        """A worker behind a link, and the links."""
        if self.cluster.links is None:
            raise NoVictim("links")
        return self.member("worker"), self.cluster.links

    def one_of(self, processes: Sequence[psutil.Process]) -> psutil.Process:
        """One of several processes."""
        if not processes:
            raise NoVictim
        return self.rng.choice(processes)

    def stop_s(self) -> float:
        """Seconds to stop a process: longer than a lease."""
        return float(self.cluster.conf["node_lease_s"]) + BEYOND_LEASE_S

    def hold(self, processes: Sequence[psutil.Process]) -> None:
        """Stop processes for longer than a lease, then let them go on."""
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        time.sleep(self.stop_s())
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.resume()


def _told(role: str, number: signal.Signals) -> Callable[[Injector], str]:
    def act(injector: Injector) -> str:
        member = injector.member(role)
        _send(member, number)
        return member.name

    return act


def _hold(role: str) -> Callable[[Injector], str]:
    def act(injector: Injector) -> str:
        member = injector.member(role)
        injector.hold(member.family())
        return member.name

    return act


def _send(member: Member, number: signal.Signals) -> None:
    member.expected = True
    with contextlib.suppress(ProcessLookupError):
        os.kill(member.pid, number)


def _kill_child(injector: Injector) -> str:
    member = injector.member("worker")
    injector.one_of(member.pool()).kill()
    return f"a child of {member.name}"


def _hold_child(injector: Injector) -> str:
    member = injector.member("worker")
    injector.hold([injector.one_of(member.pool())])
    return f"a child of {member.name}"


def _agent(injector: Injector) -> tuple[Member, psutil.Process]:
    member = injector.member("worker")
    agent = member.agent()
    if agent is None:
        raise NoVictim("agent")
    return member, agent


def _kill_agent(injector: Injector) -> str:
    member, agent = _agent(injector)
    agent.kill()
    return f"the agent of {member.name}"


def _hold_agent(injector: Injector) -> str:
    member, agent = _agent(injector)
    injector.hold([agent])
    return f"the agent of {member.name}"


def _vanish(injector: Injector) -> str:
    """A machine that goes off: all processes of a worker at once."""
    member = injector.member("worker")
    member.expected = True
    family = member.family()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
    return member.name


def _drain(injector: Injector) -> str:
    """A node that is given nothing new for a while, over the API, as before an upgrade of its machine."""
    member = injector.member("worker")
    cluster = injector.cluster
    client = Client(cluster.ports, cluster.operator_key())
    name = f"w{member.name.rpartition('-')[2]}@torture"
    _, answer = client.call("GET", "/nodes")
    found = [node["id"] for node in (answer or {}).get("items", []) if node["name"] == name]
    if not found or client.call("POST", f"/nodes/{found[0]}/drain")[0] != 200:
        raise NoVictim(name)
    time.sleep(injector.stop_s())
    give_up = time.monotonic() + RESUME_S
    # 409 and 404: it is gone, and another one is there in its stead.
    while client.call("POST", f"/nodes/{found[0]}/resume")[0] not in (200, 404, 409):
        if time.monotonic() > give_up:
            raise RuntimeError(f"node {name} could not be given work again")
        time.sleep(AGAIN_S)
    return name


# -- servers ----------------------------------------------------------------------------------------------------------
def _client(injector: Injector) -> redis.Redis:
    return redis.Redis.from_url(injector.cluster.redis.url, socket_timeout=5.0)


def _down(name: str, *, sent: signal.Signals | None = None, away_s: float = 0.0) -> Callable[[Injector], str]:
    """A server that stops, in order or by a signal, and is there again, at once or after a while."""

    def act(injector: Injector) -> str:
        cluster = injector.cluster
        server = cluster.redis if name == "redis" else cluster.postgres
        if sent is not None and (pid := server.process.pid):
            os.kill(pid, sent)
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).wait(20)
        server.stop()
        time.sleep(away_s)
        server.start()
        return name

    return act


def _redis_flush(injector: Injector) -> str:
    with _client(injector) as client:
        client.flushall()
    return "redis"


def _redis_full(injector: Injector) -> str:
    with _client(injector) as client:
        client.config_set("maxmemory", "1mb")
        time.sleep(FULL_S)
        client.config_set("maxmemory", "512mb")
    return "redis"


# -- links and clocks -------------------------------------------------------------------------------------------------
def _cut(*, towards: bool, back: bool) -> Callable[[Injector], str]:
    def act(injector: Injector) -> str:
        member, links = injector.linked()
        links.cut(member.link, towards=towards, back=back)
        time.sleep(injector.stop_s())
        links.heal(member.link)
        return f"the link of {member.name}"

    return act


def _slow(injector: Injector) -> str:
    member, links = injector.linked()
    try:
        links.slow(member.link)
        time.sleep(injector.stop_s())
    except LinkError as error:
        raise NoVictim(str(error)) from error
    finally:
        links.heal(member.link)
    return f"the link of {member.name}"


def _clock(role: str) -> Callable[[Injector], str]:
    """A wall clock that jumps, and after a while jumps back."""

    def act(injector: Injector) -> str:
        clocks = injector.cluster.clocks
        if clocks is None:
            raise NoVictim("clocks")
        name = role if role in ("redis", "postgresql") else injector.member(role).name
        step_s = injector.rng.choice((-STEP_S, STEP_S))
        clocks.set(name, step_s)
        time.sleep(injector.stop_s())
        clocks.set(name, 0.0)
        return f"the clock of {name} ({step_s:+g} s)"

    return act


Action = tuple[Callable[[Injector], str], bool]
"""What is done, and whether the mending is counted from its end: true of servers, which are not ours to mend."""
FAULTS: dict[str, Action] = {
    "child killed": (_kill_child, False),
    "child stopped": (_hold_child, True),
    "agent killed": (_kill_agent, False),
    "agent stopped": (_hold_agent, False),
    "worker killed": (_told("worker", signal.SIGKILL), False),
    "worker stopped": (_hold("worker"), False),
    "worker drained": (_told("worker", signal.SIGTERM), False),
    "node vanished": (_vanish, False),
    "node drained": (_drain, True),
    "dispatcher killed": (_told("dispatcher", signal.SIGKILL), False),
    "dispatcher stopped": (_hold("dispatcher"), False),
    "dispatcher restarted": (_told("dispatcher", signal.SIGTERM), False),
    "upkeep killed": (_told("upkeep", signal.SIGKILL), False),
    "upkeep stopped": (_hold("upkeep"), False),
    "beat killed": (_told("beat", signal.SIGKILL), False),
    "beat stopped": (_hold("beat"), False),
    "submitter killed": (_told("submitter", signal.SIGKILL), False),
    "submitter stopped": (_hold("submitter"), False),
    "submitter restarted": (_told("submitter", signal.SIGTERM), False),
    "Redis restarted": (_down("redis"), True),
    "Redis killed": (_down("redis", sent=signal.SIGKILL), True),
    "Redis away": (_down("redis", away_s=AWAY_S), True),
    "Redis emptied": (_redis_flush, True),
    "Redis full": (_redis_full, True),
    "PostgreSQL restarted (fast)": (_down("postgresql"), True),
    "PostgreSQL restarted (immediate)": (_down("postgresql", sent=signal.SIGQUIT), True),
    "PostgreSQL away": (_down("postgresql", away_s=AWAY_S), True),
    **{f"link {way}": (act, False) for way, act in (
        ("cut", _cut(towards=True, back=True)), ("deaf", _cut(towards=False, back=True)),
        ("dumb", _cut(towards=True, back=False)))},
    "link slow": (_slow, True),
    **{f"clock of {who} steps": (_clock(role), True) for who, role in (
        ("a worker", "worker"), ("a dispatcher", "dispatcher"), ("upkeep", "upkeep"), ("beat", "beat"),
        ("a submitter", "submitter"), ("Redis", "redis"))},
}  # fmt: skip
LINKS = tuple(kind for kind in FAULTS if kind.startswith("link "))
CUTS = tuple(kind for kind in LINKS if kind != "link slow")
CLOCKS = tuple(kind for kind in FAULTS if kind.startswith("clock "))


def plan(count: int, rng: random.Random, without: Collection[str] = ()) -> list[str]:
    """``count`` kinds in random order, each as often as any other; ``without`` those that cannot be had."""
    kinds: list[str] = []
    while len(kinds) < count:
        batch = [kind for kind in FAULTS if kind not in without]
        rng.shuffle(batch)
        kinds += batch
    return kinds[:count]
