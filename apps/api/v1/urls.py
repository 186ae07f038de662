"""The addresses of version 1, stable from their first day. The busiest come first."""

from __future__ import annotations

from django.urls import path, re_path

from apps.api.v1.views import bulk, graphs, platform, schedules, streams, tasks, usage, webhooks, work

urlpatterns = [
    path("tasks", tasks.Tasks.as_view(), name="tasks"),
    path("tasks/cancel", bulk.CancelTasks.as_view(), name="tasks-cancel"),
    path("tasks/retry", bulk.RetryTasks.as_view(), name="tasks-retry"),
    path("tasks/<uuid:task_id>", tasks.OneTask.as_view(), name="task"),
    path("tasks/<uuid:task_id>/history", tasks.TaskHistory.as_view(), name="task-history"),
    path("tasks/<uuid:task_id>/attempts", tasks.TaskAttempts.as_view(), name="task-attempts"),
    path("tasks/<uuid:task_id>/logs", tasks.TaskLogs.as_view(), name="task-logs"),
    path("tasks/<uuid:task_id>/cancel", tasks.CancelTask.as_view(), name="task-cancel"),
    path("tasks/<uuid:task_id>/retry", tasks.RetryTask.as_view(), name="task-retry"),
    path("tasks/<uuid:task_id>/graph", graphs.TaskGraph.as_view(), name="task-graph"),
    path("workflows", work.Workflows.as_view(), name="workflows"),
    path("workflows/<uuid:workflow_id>", work.OneWorkflow.as_view(), name="workflow"),
    path("workflows/<uuid:workflow_id>/tasks", graphs.WorkflowTasks.as_view(), name="workflow-tasks"),
    path("workflows/<uuid:workflow_id>/cancel", graphs.CancelWorkflow.as_view(), name="workflow-cancel"),
    path("workflows/<uuid:workflow_id>/rerun", graphs.RerunWorkflow.as_view(), name="workflow-rerun"),
    path("secrets", graphs.Secrets.as_view(), name="secrets"),
    path("secrets/<str:secret_name>", graphs.OneSecret.as_view(), name="secret"),
    path("scripts", work.Scripts.as_view(), name="scripts"),
    re_path(r"^scripts/(?P<sha256>[0-9a-f]{64})$", work.OneScript.as_view(), name="script"),
    path("dead-letters", work.DeadLetters.as_view(), name="dead-letters"),
    path("dead-letters/<uuid:task_id>/requeue", work.RequeueDeadLetter.as_view(), name="dead-letter-requeue"),
    path("schedules", schedules.Schedules.as_view(), name="schedules"),
    path("schedules/<uuid:schedule_id>", schedules.OneSchedule.as_view(), name="schedule"),
    path("schedules/<uuid:schedule_id>/fires", schedules.ScheduleFires.as_view(), name="schedule-fires"),
    path(
        "schedules/<uuid:schedule_id>/backfill",
        schedules.BackfillSchedule.as_view(),
        name="schedule-backfill",
    ),
    path("webhooks", webhooks.Webhooks.as_view(), name="webhooks"),
    path("webhooks/<uuid:webhook_id>", webhooks.OneWebhook.as_view(), name="webhook"),
    path("webhooks/<uuid:webhook_id>/rotate", webhooks.RotateWebhook.as_view(), name="webhook-rotate"),
    path("webhooks/<uuid:webhook_id>/ping", webhooks.PingWebhook.as_view(), name="webhook-ping"),
    path(
        "webhooks/<uuid:webhook_id>/deliveries",
        webhooks.WebhookDeliveries.as_view(),
        name="webhook-deliveries",
    ),
    path(
        "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay",
        webhooks.ReplayDelivery.as_view(),
        name="webhook-replay",
    ),
    path("tasks/<uuid:task_id>/events", streams.TaskEvents.as_view(), name="task-events"),
    path("workflows/<uuid:workflow_id>/events", streams.WorkflowEvents.as_view(), name="workflow-events"),
    path("events", streams.TenantEvents.as_view(), name="events"),
    path("usage", usage.Usage.as_view(), name="usage"),
    path("tiers", platform.Tiers.as_view(), name="tiers"),
    path("nodes", platform.Nodes.as_view(), name="nodes"),
    path("queues", platform.Queues.as_view(), name="queues"),
    path("limits", platform.Limits.as_view(), name="limits"),
    # Whatever else, newlines and nothing included.
    re_path(r"^[\s\S]*$", platform.Nowhere.as_view(), name="nowhere"),
]
app_name = "api"
