"""Feishu, DingTalk and WeCom as identity providers. WORKPLACE_PROVIDERS is TOML with a table for each; a wrong value stops the
start with an error that says what is wrong and where. See docs/sign-in.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlencode, urlsplit

from portal.infra.providers import tables
from portal.infra.providers.identity_providers import IdentityProvider

VARIABLE = "WORKPLACE_PROVIDERS"
FEISHU, DINGTALK, WECOM = "feishu", "dingtalk", "wecom"


@dataclass(frozen=True, slots=True)
class Service:
    """The addresses of a service. `contacts_url`: the older API with people and departments, which may be on another host."""

    label: str
    login_url: str
    api_url: str
    contacts_url: str
    origins: tuple[str, ...]  # further origins through which its login page redirects


SERVICES = {
    FEISHU: Service(
        "飞书", "https://accounts.feishu.cn", "https://open.feishu.cn", "https://open.feishu.cn",
        ("https://passport.feishu.cn", "https://open.feishu.cn"),
    ),
    DINGTALK: Service(
        "钉钉", "https://login.dingtalk.com", "https://api.dingtalk.com", "https://oapi.dingtalk.com", ()
    ),
    WECOM: Service(
        "企业微信", "https://login.work.weixin.qq.com", "https://qyapi.weixin.qq.com", "https://qyapi.weixin.qq.com",
        ("https://open.work.weixin.qq.com",),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workplace(IdentityProvider):
    """An app that the organisation has registered at the service. `client_id`: App ID, AppKey or CorpID; `agent_id`: WeCom
    only; `tenant`: Feishu's tenant_key, if only people of that tenant may log in. `department_names` False: departments are
    given by id only."""

    kind: ClassVar[str] = "workplace"

    service: str
    client_id: str
    client_secret: str = field(repr=False)
    login_url: str
    api_url: str
    contacts_url: str
    agent_id: str = ""
    tenant: str = ""
    department_names: bool = True
    sign_in_origins: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        return "openid_connect"

    @property
    def origins(self) -> tuple[str, ...]:
        parts = urlsplit(self.login_url)
        return (f"{parts.scheme}://{parts.netloc}", *self.sign_in_origins)

    def login_page(self, back: str, state: str) -> str:
        """The URL to which the browser is sent; it returns to `back` with a code and the state."""
        common = {"redirect_uri": back, "state": state}
        match self.service:
            case "feishu":
                path = "/open-apis/authen/v1/authorize"
                query = {"client_id": self.client_id, "response_type": "code", **common}
            case "dingtalk":
                path = "/oauth2/auth"
                query = {"client_id": self.client_id, "response_type": "code", "scope": "openid", "prompt": "consent"}
                query |= common
            case _:
                path = "/wwlogin/sso/login"
                query = {"login_type": "CorpApp", "appid": self.client_id, "agentid": self.agent_id, **common}
        return f"{self.login_url}{path}?{urlencode(query)}"

    def as_app(self) -> dict[str, object]:
        """The provider as a SocialApp of allauth's settings. Its answers become claims, as with OpenID Connect."""
        return {
            "provider_id": self.key,
            "name": self.label,
            "client_id": self.client_id,
            "settings": {"server_url": ""},
        }


URLS = ("login_url", "api_url", "contacts_url")
TEXTS = {"service", "label", "client_id", "client_secret", "client_secret_file", "agent_id", "tenant", *URLS}


def read(text: str) -> tuple[Workplace, ...]:
    """The providers of the text, in its order. Raises ImproperlyConfigured."""
    return tables.read(VARIABLE, text, _provider)


def _provider(table: tables.Table) -> Workplace:
    table.check(TEXTS, {"sign_in_origins"}, {"department_names"})
    name = table.text("service", table.key)
    service = SERVICES.get(name)
    if service is None:
        raise table.wrong(f"has no known service for {table.key}: set service to {', '.join(SERVICES)}")
    if name == WECOM:
        table.needed("agent_id")
    urls = {each: table.text(each, getattr(service, each)).rstrip("/") for each in URLS}
    for each, url in urls.items():
        table.address(each, url)
    origins = tuple(each.rstrip("/") for each in table.values.get("sign_in_origins", service.origins))
    for origin in origins:
        table.address("sign_in_origins", origin)
    return Workplace(
        key=table.key, label=table.text("label", service.label), service=name, client_id=table.needed("client_id"),
        client_secret=table.secret("client_secret"), agent_id=table.text("agent_id"), tenant=table.text("tenant"),
        department_names=table.values.get("department_names", True), sign_in_origins=origins, **urls,
    )  # fmt: skip
