"""Sign-in with SAML: the URLs to which the provider redirects the browser back, and our metadata. The library is an extra, so
it is imported where it is needed."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import redis
from allauth.core.internal import httpkit
from allauth.socialaccount.helpers import complete_social_login
from allauth.socialaccount.sessions import LoginSession
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from portal.access import NotVisible
from portal.infra.providers.saml import PERSISTENT, Saml
from portal.sign_in import identities
from portal.sign_in.adapters import ProviderAdapter, ProviderBegan
from portal.sign_in.claims import cleaned
from portal.views.provider_answers import answer

CLOCKS_APART = 600
"""s; more than the clock skew that the library tolerates for an assertion."""


def _provider(request: HttpRequest, key: str) -> tuple[Saml, Any]:
    """The configured provider, and allauth's object for it. Raises NotVisible."""
    saml = identities.provider_of(key)
    if not isinstance(saml, Saml):
        raise NotVisible
    return saml, ProviderAdapter(request).get_app(request, "saml", client_id=key).get_provider(request)


@contextlib.contextmanager
def _as_value_errors() -> Iterator[None]:
    """Turns the library's exceptions about metadata and responses into ValueError."""
    from onelogin.saml2.errors import OneLogin_Saml2_Error

    try:
        yield
    except (OneLogin_Saml2_Error, SyntaxError) as error:  # of XML, too
        raise ValueError(str(error)) from error


def begin(request: HttpRequest, key: str) -> HttpResponse:
    """Redirects the browser to the provider."""
    _saml, provider = _provider(request, key)

    def view(request: HttpRequest) -> HttpResponse:
        with _as_value_errors():
            redirect: HttpResponse = provider.redirect_from_request(request)
        return redirect

    return answer(request, key, view)


@csrf_exempt
@never_cache
@require_POST
def consume(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Receives the provider's response, which comes without our session cookie, and continues in a request that has the cookie.
    Its size is limited as that of any unauthenticated request: portal/server/intake.py."""
    from allauth.socialaccount.providers.saml import views

    _provider(request, organization_slug)
    response: HttpResponse = views.acs(request, organization_slug=organization_slug)
    return response


@never_cache
@require_safe
def finish(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Logs in the person that the response names. It must answer a request of this browser or, if that is allowed, be
    unsolicited; and each response is accepted once."""
    saml, provider = _provider(request, organization_slug)

    def view(request: HttpRequest) -> HttpResponse:
        from allauth.socialaccount.providers.saml.utils import decode_relay_state

        carried = LoginSession(request, "saml_acs_session", "saml-acs-session")
        text = carried.store.get("request")
        carried.delete()
        if not text:
            raise ValueError("no answer of the provider was kept for this browser")
        sent = httpkit.deserialize_request(text, HttpRequest())
        response = _checked(sent, provider)
        asked = response.get_last_response_in_response_to()
        if not asked:
            _accept_unsolicited(saml, response)
            if request.user.is_authenticated:  # an unsolicited response must not change who is logged in
                return redirect(decode_relay_state(sent.POST.get("RelayState")) or "portal:home")
        login = provider.sociallogin_from_response(request, response)
        if asked:
            login.state = provider.unstash_redirect_state(request, asked)
        else:
            login.state = {"process": "login", "next": decode_relay_state(sent.POST.get("RelayState"))}
        login.account.uid, login.account.extra_data = _subject(saml, response), _claims(saml, response)
        login.email_addresses = []
        finished: HttpResponse = complete_social_login(request, login)
        return finished

    return answer(request, organization_slug, view)


def _checked(request: HttpRequest, provider: Any) -> Any:
    """The response, after checking that the provider has signed it and that it is meant for us. Raises ValueError."""
    from allauth.socialaccount.providers.saml.utils import build_auth

    with _as_value_errors():
        response = build_auth(request, provider)
        response.process_response()
    if response.get_errors() or not response.is_authenticated():
        raise ValueError(f"{', '.join(response.get_errors())}: {response.get_last_error_reason()}")
    return response


def _accept_unsolicited(saml: Saml, response: Any) -> None:
    """Accepts an unsolicited response: a login that began at the provider. It answers no request, so only the assertion's id
    shows whether it was used before. Raises ProviderBegan if such logins are not allowed, and ValueError for one that was used
    before or stolen: if only the assertion is signed, somebody could have removed from the rest that it answers another
    browser's request."""
    from onelogin.saml2.xml_utils import OneLogin_Saml2_XML as Xml

    if not saml.idp_initiated:
        raise ProviderBegan(provider=saml.label)
    document = Xml.to_etree(response.get_last_response_xml())
    if Xml.query(document, "//saml:SubjectConfirmationData[@InResponseTo]"):
        raise ValueError("it is the answer to a question, of which the answer no longer tells")
    identifier, until = response.get_last_assertion_id(), response.get_last_assertion_not_on_or_after()
    if not identifier or not until:
        raise ValueError("it has no identifier, or no end")
    name = hashlib.sha256(f"{saml.key} {identifier}".encode()).hexdigest()
    try:
        is_first = cache.add(f"saml-assertion:{name}", "", timeout=max(1, int(until - time.time()) + CLOCKS_APART))
    except redis.RedisError as error:
        raise ValueError(f"whether it was used before cannot be told: {error}") from error
    if not is_first:
        raise ValueError("it was used before")


def _subject(saml: Saml, response: Any) -> str:
    """The person's permanent identifier. Raises ValueError for one that may change at the next login."""
    if saml.subject_attribute:
        subject = _texts(response, saml.subject_attribute)[:1]
    else:
        name_format = response.get_nameid_format()
        if name_format != PERSISTENT:
            raise ValueError(f"its name identifier is {name_format}, not persistent: set subject_attribute")
        subject = [response.get_nameid()]
    if not subject or not subject[0] or not subject[0].isprintable() or len(subject[0]) > identities.LONGEST_SUBJECT:
        raise ValueError(f"it names no subject of at most {identities.LONGEST_SUBJECT} characters")
    return str(subject[0])


def _claims(saml: Saml, response: Any) -> Any:
    """The assertion's attributes as claims of OpenID Connect."""
    names = {
        "preferred_username": saml.username_attribute, "email": saml.email_attribute,
        "given_name": saml.given_name_attribute, "family_name": saml.family_name_attribute,
    }  # fmt: skip
    claims: dict[str, Any] = {claim: next(iter(_texts(response, name)), "") for claim, name in names.items()}
    claims["groups"] = _texts(response, saml.groups_attribute)
    return cleaned({"userinfo": claims})


def _texts(response: Any, name: str) -> list[str]:
    values = response.get_attributes().get(name, []) if name else []
    return [value for value in values if isinstance(value, str) and value]


@require_safe
def metadata(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Our own metadata, for the provider's administrator."""
    saml, provider = _provider(request, organization_slug)

    def view(request: HttpRequest) -> HttpResponse:
        from allauth.socialaccount.providers.saml.utils import build_sp_config
        from onelogin.saml2.settings import OneLogin_Saml2_Settings

        config = build_sp_config(request, provider.app.settings, organization_slug)
        del config["singleLogoutService"]  # logging out here does not log out at the provider
        security = {"allowSingleLabelDomains": True, "wantAssertionsEncrypted": bool(saml.own_key)}
        with _as_value_errors():
            facts = {"strict": True, "sp": config, "security": security}
            settings = OneLogin_Saml2_Settings(settings=facts, sp_validation_only=True)
            return HttpResponse(settings.get_sp_metadata(), content_type="text/xml")

    return answer(request, organization_slug, view)


def no_logout(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """allauth requires a URL for logging out at the provider, which is not supported."""
    raise NotVisible
