"""The addresses of the console. A tenant's stand below its slug, as those of the REST interface do below its version."""

from __future__ import annotations

from django.urls import path

from slackwater_console import acts
from slackwater_console.views import login, oidc, organization, submit, tasks, webhooks, work

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
    path("<slug:slug>/submit/", submit.handlers, name="handlers"),
    path("<slug:slug>/submit/<str:handler_name>/", submit.submit, name="submit"),
    path("<slug:slug>/workflows/", work.workflows, name="workflows"),
    path("<slug:slug>/workflows/<uuid:workflow_id>/", work.workflow, name="workflow"),
    path("<slug:slug>/workflows/<uuid:workflow_id>/picture.json", work.picture, name="picture"),
    path("<slug:slug>/schedules/", work.schedules, name="schedules"),
    path("<slug:slug>/schedules/<uuid:schedule_id>/", work.schedule, name="schedule"),
    path("<slug:slug>/dead-letters/", work.dead_letters, name="dead_letters"),
    path("<slug:slug>/usage/", organization.usage, name="usage"),
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
