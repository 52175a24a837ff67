"""`database.scheduler.v1.SchedulerDispatcher` with a client that protoc generates from the project's own proto."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import grpc
import pytest
from waiting import until, until_state

from tidewheel import Client, RetryPolicy
from tidewheel.testing import Server

ROOT = Path(__file__).resolve().parents[3]
PROTO = "database/scheduler/v1/scheduler.proto"
PACKAGE = "database.scheduler.v1"
STRING, INT32, INT64, BOOL, MESSAGE = 9, 5, 3, 8, 11
"""Types of fields, by their numbers in descriptor.proto."""
MESSAGES = {
    "ClaimTriggersRequest": [("worker_id", 1, STRING), ("max_tasks", 2, INT32), ("lease_duration_seconds", 3, INT64)],
    "TaskPayload": [
        ("trigger_id", 1, STRING),
        ("job_id", 2, STRING),
        ("tenant_id", 3, STRING),
        ("job_type", 4, STRING),
        ("payload_json", 5, STRING),
        ("scheduled_time_epoch", 6, INT64),
    ],
    "ClaimTriggersResponse": [("tasks", 1, MESSAGE)],
    "UpdateAttemptRequest": [
        ("attempt_id", 1, STRING),
        ("trigger_id", 2, STRING),
        ("status", 3, STRING),
        ("error_message", 4, STRING),
    ],
    "UpdateAttemptResponse": [("success", 1, BOOL)],
}
METHODS = {
    "ClaimTriggers": ("ClaimTriggersRequest", "ClaimTriggersResponse"),
    "UpdateAttemptStatus": ("UpdateAttemptRequest", "UpdateAttemptResponse"),
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The generated modules: messages and stub."""
    folder = tmp_path_factory.mktemp("generated")
    command = ["-m", "grpc_tools.protoc", f"-I{ROOT}/crates/api/proto", f"--python_out={folder}"]
    subprocess.run([sys.executable, *command, f"--grpc_python_out={folder}", PROTO], check=True, timeout=120)
    sys.path.insert(0, str(folder))
    try:
        messages = importlib.import_module(f"{PACKAGE}.scheduler_pb2")
        stubs = importlib.import_module(f"{PACKAGE}.scheduler_pb2_grpc")
    finally:
        sys.path.remove(str(folder))
    return SimpleNamespace(messages=messages, stubs=stubs)


class Dispatcher:
    """The generated client, for one queue, and for one tenant or all."""

    def __init__(self, generated: SimpleNamespace, channel: grpc.aio.Channel, tenant: str | None, queue: str) -> None:
        self.messages = generated.messages
        self.stub = generated.stubs.SchedulerDispatcherStub(channel)
        named = {"tidewheel-tenant": tenant, "tidewheel-queue": queue}
        self.metadata = tuple((name, value) for name, value in named.items() if value is not None)

    async def claim(self, max_tasks: int, lease_s: int = 60) -> Any:
        request = self.messages.ClaimTriggersRequest(
            worker_id="python-1", max_tasks=max_tasks, lease_duration_seconds=lease_s
        )
        return await self.stub.ClaimTriggers(request, metadata=self.metadata)

    async def claim_one(self, lease_s: int = 60) -> Any:
        """The first that comes."""

        async def look() -> Any:
            return next(iter((await self.claim(1, lease_s)).tasks), None)

        return await until(look, "a trigger")

    async def update(self, trigger_id: str, status: str, error: str = "") -> bool:
        request = self.messages.UpdateAttemptRequest(
            attempt_id="a1", trigger_id=trigger_id, status=status, error_message=error
        )
        answer = await self.stub.UpdateAttemptStatus(request, metadata=self.metadata)
        assert isinstance(answer, self.messages.UpdateAttemptResponse)
        assert isinstance(answer.success, bool)
        return answer.success


@pytest.fixture
async def dispatcher(server: Server, generated: SimpleNamespace, queue: str) -> AsyncIterator[Dispatcher]:
    async with grpc.aio.insecure_channel(server.url.removeprefix("http://")) as channel:
        yield Dispatcher(generated, channel, "default", queue)


def test_the_messages_are_what_its_clients_were_generated_from(generated: SimpleNamespace) -> None:
    file = generated.messages.DESCRIPTOR
    assert file.package == PACKAGE
    assert set(file.message_types_by_name) == set(MESSAGES)
    for name, fields in MESSAGES.items():
        message = file.message_types_by_name[name]
        assert [(field.name, field.number, field.type) for field in message.fields] == fields, name
    tasks = file.message_types_by_name["ClaimTriggersResponse"].fields_by_name["tasks"]
    assert tasks.is_repeated
    assert tasks.message_type.name == "TaskPayload"
    assert list(file.services_by_name) == ["SchedulerDispatcher"]
    methods = file.services_by_name["SchedulerDispatcher"].methods
    assert {method.name: (method.input_type.name, method.output_type.name) for method in methods} == METHODS
    assert not any(method.client_streaming or method.server_streaming for method in methods)


async def test_a_job_is_claimed_with_all_its_facts_and_reported_on(
    client: Client, dispatcher: Dispatcher, queue: str
) -> None:
    assert list((await dispatcher.claim(10)).tasks) == []
    run_at = datetime.now(timezone.utc) + timedelta(milliseconds=50)
    job = await client.submit("bill", {"batch": 500, "für": "Ada"}, run_at=run_at, queue=queue)
    task = await dispatcher.claim_one()
    assert task.trigger_id.startswith(job.id)
    assert task.trigger_id != job.id
    assert (task.job_id, task.tenant_id, task.job_type) == (job.id, "default", "bill")
    assert task.payload_json == '{"batch":500,"für":"Ada"}'
    assert task.scheduled_time_epoch == int(job.run_at.timestamp())
    assert await dispatcher.update(task.trigger_id, "STARTED")
    running = await client.get(job.id)
    assert (running.state, (await client.attempts(job.id))[0].worker) == ("running", "python-1")
    assert await dispatcher.update(task.trigger_id, "RUNNING")
    assert await dispatcher.update(task.trigger_id, "SUCCEEDED")
    assert (await client.get(job.id)).state == "succeeded"
    assert await dispatcher.update(task.trigger_id, "SUCCEEDED"), "the same again"
    assert not await dispatcher.update(task.trigger_id, "FAILED", "too late")
    assert (await client.get(job.id)).state == "succeeded"


async def test_a_run_of_a_registered_schedule_names_what_was_registered(server: Server, generated: Any) -> None:
    form = {
        "tenant_id": "acme",
        "job_name": "nightly",
        "job_type": "report",
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "payload": {"region": "north"},
    }
    async with (
        Client(server.url, tenant="acme") as client,
        aiohttp.ClientSession(server.url, headers={"Tidewheel-Tenant": "acme"}) as session,
        grpc.aio.insecure_channel(server.url.removeprefix("http://")) as channel,
    ):
        async with session.post("/api/v1/jobs", json=form) as answer:
            made = await answer.json()
            assert made["status"] == "ACTIVE", made
        run = await client.schedules.trigger(made["job_id"])
        dispatcher = Dispatcher(generated, channel, "acme", "default")
        task = await dispatcher.claim_one()
        assert task.trigger_id.startswith(run.job_id)
        assert (task.job_id, task.tenant_id, task.job_type) == (made["job_id"], "acme", "report")
        assert task.payload_json == '{"region": "north"}', "byte for byte"
        assert task.scheduled_time_epoch == int((await client.get(run.job_id)).fire_at.timestamp())
        assert await dispatcher.update(task.trigger_id, "SUCCEEDED")
        assert (await client.get(run.job_id)).state == "succeeded"


async def test_without_keys_a_client_without_metadata_serves_all_tenants(
    server: Server, generated: SimpleNamespace, queue: str
) -> None:
    async with grpc.aio.insecure_channel(server.url.removeprefix("http://")) as channel:
        dispatcher = Dispatcher(generated, channel, None, queue)
        for tenant in ("acme", "globex"):
            async with Client(server.url, tenant=tenant) as client:
                job = await client.submit("t", queue=queue)
                task = await dispatcher.claim_one()
                assert (task.job_id, task.tenant_id) == (job.id, tenant)
                assert await dispatcher.update(task.trigger_id, "STARTED")
                assert await dispatcher.update(task.trigger_id, "SUCCEEDED")
                assert (await client.get(job.id)).state == "succeeded"


async def test_failed_is_tried_again_and_the_attempt_before_is_stale(
    client: Client, dispatcher: Dispatcher, queue: str
) -> None:
    retry = RetryPolicy(max_attempts=2, policy="fixed", base=0)
    job = await client.submit("t", queue=queue, retry=retry)
    first = await dispatcher.claim_one()
    assert await dispatcher.update(first.trigger_id, "FAILED", "the disk is full")
    second = await dispatcher.claim_one()
    assert second.job_id == first.job_id == job.id
    assert second.trigger_id != first.trigger_id
    assert not await dispatcher.update(first.trigger_id, "SUCCEEDED"), "stale"
    assert not await dispatcher.update(first.trigger_id, "RUNNING"), "stale"
    assert await dispatcher.update(second.trigger_id, "FAILED", "still full")
    assert (await client.get(job.id)).state == "dead"
    assert [attempt.detail for attempt in await client.attempts(job.id)] == ["the disk is full", "still full"]


async def test_a_lease_that_ran_out_gives_the_trigger_to_another(
    client: Client, dispatcher: Dispatcher, queue: str
) -> None:
    job = await client.submit("t", queue=queue, retry=RetryPolicy(max_attempts=5, policy="fixed", base=0))
    lost = await dispatcher.claim_one(lease_s=1)
    taken_over = await dispatcher.claim_one()
    assert (taken_over.job_id, taken_over.trigger_id != lost.trigger_id) == (job.id, True)
    assert not await dispatcher.update(lost.trigger_id, "SUCCEEDED")
    assert await dispatcher.update(taken_over.trigger_id, "CANCELLED", "not wanted")
    await until_state(client, job.id, "cancelled")


async def test_what_cannot_be_meant_is_refused_with_a_status_and_a_code(
    client: Client, dispatcher: Dispatcher, queue: str
) -> None:
    async def refusal(call: Any) -> tuple[grpc.StatusCode, Any]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        trailers = refused.value.trailing_metadata()
        assert trailers is not None
        return refused.value.code(), trailers.get("tidewheel-code")

    invalid = (grpc.StatusCode.INVALID_ARGUMENT, "invalid_value")
    unknown = (grpc.StatusCode.NOT_FOUND, "job_not_found")
    assert await refusal(dispatcher.claim(0)) == invalid
    assert await refusal(dispatcher.claim(-1)) == invalid
    assert await refusal(dispatcher.claim(1, lease_s=100_000)) == invalid
    assert await refusal(dispatcher.update("nonsense", "SUCCEEDED")) == unknown
    await client.submit("t", queue=queue)
    task = await dispatcher.claim_one()
    assert await refusal(dispatcher.update(task.trigger_id, "DONE")) == invalid
    dispatcher.metadata = (("tidewheel-tenant", "another"),)
    assert await refusal(dispatcher.update(task.trigger_id, "SUCCEEDED")) == unknown


async def test_many_claimers_share_what_is_due_without_overlap(
    client: Client, dispatcher: Dispatcher, queue: str
) -> None:
    ids = {(await client.submit("t", n, queue=queue)).id for n in range(30)}
    claimed: list[str] = []

    async def drain() -> None:
        while len(claimed) < len(ids):
            tasks = (await dispatcher.claim(7)).tasks
            assert len(tasks) <= 7
            claimed.extend(task.job_id for task in tasks)
            assert all(await asyncio.gather(*(dispatcher.update(task.trigger_id, "SUCCEEDED") for task in tasks)))

    await asyncio.wait_for(asyncio.gather(*(drain() for _ in range(4))), 60)
    assert sorted(claimed) == sorted(ids)
