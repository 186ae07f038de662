"""Coming in and going out: the platform's own users and passwords, limited as the admin's login is."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView, PasswordResetConfirmView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache

from slackwater_conf import conf
from slackwater_console.person import memberships

LOGIN = "console:login"
BACKEND = "slackwater_monitoring.logins.LimitedBackend"


class Login(LoginView):
    """The form. Whoever is logged in already may log in as somebody else."""

    template_name = "slackwater_console/login.html"
    next_page = "console:home"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Whether there is another way in."""
        return super().get_context_data(title="Log in", oidc=bool(conf().oidc_issuer), **kwargs)


class PasswordNew(PasswordResetConfirmView):
    """The first password of a member, by a link that its admin was shown: it holds once, and for three days."""

    template_name = "slackwater_console/password.html"
    title = "Choose a password"
    post_reset_login = True
    post_reset_login_backend = BACKEND
    success_url = reverse_lazy("console:home")


class PasswordChange(PasswordChangeView):
    """Another password, by who knows the present one; other sessions end."""

    template_name = "slackwater_console/password.html"
    title = "Change the password"
    success_url = reverse_lazy("console:home")


class Logout(LogoutView):
    """Back to the form."""

    next_page = LOGIN


@never_cache
@login_required(login_url=LOGIN)
def home(request: HttpRequest) -> HttpResponse:
    """The first of one's tenants; a page that says so to those who have none."""
    member = memberships(request.user).first()
    if member is None:
        return render(request, "slackwater_console/nowhere.html", {"title": "No organisation"}, status=403)
    return redirect("console:tasks", member.tenant.slug)
