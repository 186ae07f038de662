"""The table of states, whatever path is taken through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.core.states import (
    FINAL,
    IN_FLIGHT,
    TRANSITIONS,
    ClientStatus,
    EdgeOutcome,
    RunCondition,
    TaskState,
    client_status,
    edge_outcome,
    is_final,
    turn,
)

STATES = st.sampled_from(TaskState)
_AFTER = {state: [b for (a, b) in TRANSITIONS if a is state] for state in [None, *TaskState]}


@given(STATES, STATES)
def test_a_final_state_is_left_only_to_run_again(before: TaskState, after: TaskState) -> None:
    if is_final(before) and (before, after) in TRANSITIONS:
        assert after in (TaskState.READY, TaskState.BLOCKED)


@given(STATES)
def test_only_ready_is_claimed_and_only_queued_starts(state: TaskState) -> None:
    assert ((state, TaskState.QUEUED) in TRANSITIONS) == (state is TaskState.READY)
    assert ((state, TaskState.RUNNING) in TRANSITIONS) == (state is TaskState.QUEUED)
    # A map succeeds with its elements, without running itself.
    assert ((state, TaskState.SUCCEEDED) in TRANSITIONS) == (state in (TaskState.RUNNING, TaskState.BLOCKED))


@given(STATES)
def test_no_change_to_itself_and_each_has_a_reason(state: TaskState) -> None:
    assert (state, state) not in TRANSITIONS
    assert all(TRANSITIONS[(state, after)].strip() for after in _AFTER[state])


@given(st.data())
def test_a_random_walk_can_always_end(data: st.DataObject) -> None:
    state: TaskState | None = None
    for _ in range(data.draw(st.integers(1, 12))):
        state = data.draw(st.sampled_from(_AFTER[state]))
    assert state is not None
    assert _reaches_final(state)


def _reaches_final(start: TaskState) -> bool:
    seen, stack = {start}, [start]
    while stack:
        state = stack.pop()
        if state in FINAL:
            return True
        fresh = [after for after in _AFTER[state] if after not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return False


@given(STATES)
def test_status_and_outcome_agree_with_finality(state: TaskState) -> None:
    status = client_status(state)
    assert is_final(state) == (status in (ClientStatus.DONE, ClientStatus.FAILED))
    assert (state in {TaskState.SUCCEEDED, TaskState.SKIPPED}) == (status is ClientStatus.DONE)
    assert not (state in FINAL and state in IN_FLIGHT)
    if is_final(state):
        assert edge_outcome(state) is not EdgeOutcome.PENDING
    else:
        with pytest.raises(ValueError, match=state.name):
            edge_outcome(state)


@given(st.sets(st.sampled_from([each for each in EdgeOutcome if each is not EdgeOutcome.PENDING]), min_size=1))
def test_conditions_are_ordered_by_strictness(outcomes: set[EdgeOutcome]) -> None:
    turns = {each: turn(each, outcomes) for each in RunCondition}
    holds = {each: after is TaskState.READY for each, after in turns.items()}
    assert all(
        (after, after) not in TRANSITIONS and (TaskState.BLOCKED, after) in TRANSITIONS for after in turns.values()
    )
    if not outcomes & {EdgeOutcome.FAILED, EdgeOutcome.CANCELLED}:
        assert TaskState.CANCELLED not in turns.values(), "a branch not taken is not a failure"
    assert holds[RunCondition.ALL_DONE]
    assert holds[RunCondition.ANY_FAILED] != holds[RunCondition.NONE_FAILED]
    if holds[RunCondition.ALL_SUCCEEDED]:
        assert holds[RunCondition.NONE_FAILED]
