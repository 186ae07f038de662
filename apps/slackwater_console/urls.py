"""The addresses of the console. A tenant's stand below its slug, as those of the REST interface do below its version."""

from __future__ import annotations

from django.urls import path

from slackwater_console import acts
from slackwater_console.views import login, oidc, organization, schedules, submit, tasks, usage, webhooks, work

app_name = "console"
urlpatterns = [
    path("", login.home, name="home"),
    path("login/", login.Login.as_view(), name="login"),
    path("oidc/", oidc.begin, name="oidc"),
    path("oidc/callback/", oidc.callback, name="oidc_callback"),
    path("logout/", login.Logout.as_view(), name="logout"),
    path("<slug:slug>/tasks/", tasks.tasks, name="tasks"),
    path("<slug:slug>/tasks/<uuid:task_id>/", tasks.task, name="task"),
    path("<slug:slug>/tasks/<uuid:task_id>/mark.json", tasks.task_mark, name="task_mark"),
    path("<slug:slug>/tasks/<uuid:task_id>/output.json", tasks.task_output, name="task_output"),
    path("<slug:slug>/tasks/<uuid:task_id>/output.txt", tasks.task_text, name="task_text"),
    path("<slug:slug>/tasks/<uuid:task_id>/result.json", tasks.task_result, name="task_result"),
    path("<slug:slug>/tasks/<uuid:task_id>/files/<path:artifact_name>", tasks.task_file, name="task_file"),
    path("<slug:slug>/output/", tasks.output, name="output"),
    path("<slug:slug>/submit/", submit.handlers, name="handlers"),
    path("<slug:slug>/submit/<str:handler_name>/", submit.submit, name="submit"),
    path("<slug:slug>/workflows/", work.workflows, name="workflows"),
    path("<slug:slug>/workflows/<uuid:workflow_id>/", work.workflow, name="workflow"),
    path("<slug:slug>/workflows/<uuid:workflow_id>/rerun/<uuid:task_id>/", work.rerun, name="rerun"),
    path("<slug:slug>/workflows/<uuid:workflow_id>/picture.json", work.picture, name="picture"),
    path("<slug:slug>/schedules/", schedules.schedules, name="schedules"),
    path("<slug:slug>/schedules/new/", schedules.schedule_new, name="schedule_new"),
    path("<slug:slug>/schedules/firings/", schedules.firings, name="firings"),
    path("<slug:slug>/schedules/<uuid:schedule_id>/edit/", schedules.schedule_edit, name="schedule_edit"),
    path("<slug:slug>/schedules/<uuid:schedule_id>/", schedules.schedule, name="schedule"),
    path("<slug:slug>/dead-letters/", work.dead_letters, name="dead_letters"),
    path("<slug:slug>/usage/", usage.usage, name="usage"),
    path("<slug:slug>/limits/", organization.limits, name="limits"),
    path("<slug:slug>/keys/", organization.keys, name="keys"),
    path("<slug:slug>/members/", organization.members, name="members"),
    path("<slug:slug>/members/<uuid:member_id>/", organization.member, name="member"),
    path("<slug:slug>/webhooks/", webhooks.webhooks, name="webhooks"),
    path("<slug:slug>/webhooks/<uuid:webhook_id>/", webhooks.webhook, name="webhook"),
    path("<slug:slug>/members/<uuid:member_id>/invite/", organization.invitation, name="invite"),
    *acts.urls(),
    path("password/", login.PasswordChange.as_view(), name="password"),
    path(
        "password/<uidb64>/<token>/", login.PasswordNew.as_view(), name="password_new"
    ),  # last: no tenant's page is it
]
