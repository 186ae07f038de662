"""The addresses of the console. A tenant's stand below its slug, as those of the REST interface do below its version."""

from __future__ import annotations

from django.urls import path

from slackwater_console.views import login, tasks

app_name = "console"
urlpatterns = [
    path("", login.home, name="home"),
    path("login/", login.Login.as_view(), name="login"),
    path("logout/", login.Logout.as_view(), name="logout"),
    path("<slug:slug>/tasks/", tasks.tasks, name="tasks"),
    path("<slug:slug>/tasks/<uuid:task_id>/", tasks.task, name="task"),
    path("<slug:slug>/tasks/<uuid:task_id>/mark.json", tasks.task_mark, name="task_mark"),
    path("<slug:slug>/tasks/<uuid:task_id>/output.json", tasks.task_output, name="task_output"),
]
