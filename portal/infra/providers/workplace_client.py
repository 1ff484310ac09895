"""Gets from Feishu, DingTalk or WeCom who has returned with a login code, and the person's departments.

The person is always looked up in the organisation's own contacts: these services log in anybody who has an account there, also
people of other organisations. Written after the services' documentation:
Feishu: open.feishu.cn/document (authen/v2/oauth/token, authen/v1/user_info, contact/v3/users and departments),
DingTalk: open.dingtalk.com/document (oauth2/userAccessToken, contact/users/me, topapi/user/getbyunionid, topapi/v2/user/get and
department/get), WeCom: developer.work.weixin.qq.com/document (path/98152, 90196, 90208).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import httpx

from portal.infra.providers.workplaces import DINGTALK, FEISHU, Workplace

PATIENCE = 8.0  # s for each answer
DEEPEST = 20  # levels of departments
Json = dict[str, Any]
UNKNOWN_GROUPS = {"_claim_names": {"groups": "unknown"}}
"""Claims that mark the person's groups as unknown (portal/sign_in/claims.py)."""


class ServiceRefused(ValueError):
    """The service refused the request. The message has its error code, and no secret."""


class NotAMember(ValueError):
    """The person is not in the organisation, or does not work there any more."""


def person_of(provider: Workplace, code: str, back: str) -> Json:
    """The claims of the person who has returned with the code: sub, name, preferred_username, email and groups. `back`: the
    redirect address.

    Raises NotAMember, ServiceRefused, OSError (no answer).
    """
    with Client(provider) as client:
        if provider.service == FEISHU:
            return _feishu(client, provider, code, back)
        return _dingtalk(client, provider, code) if provider.service == DINGTALK else _wecom(client, provider, code)


class Client:
    def __init__(self, provider: Workplace) -> None:
        self.provider = provider
        self.http = httpx.Client(timeout=PATIENCE, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def api(self, method: str, path: str, **options: Any) -> Json:
        return self.ask(method, self.provider.api_url, path, **options)

    def contacts(self, method: str, path: str, **options: Any) -> Json:
        return self.ask(method, self.provider.contacts_url, path, **options)

    def ask(self, method: str, host: str, path: str, **options: Any) -> Json:
        """The response as a JSON object. URLs contain secrets, so errors show only the path. Raises ServiceRefused, OSError."""
        try:
            response = self.http.request(method, host + path, **options)
        except httpx.HTTPError as error:
            raise OSError(f"{path}: {type(error).__name__}") from None
        try:
            data = response.json()
        except ValueError:
            raise ServiceRefused(f"{path}: HTTP {response.status_code}, and no JSON") from None
        if not isinstance(data, dict):
            raise ServiceRefused(f"{path}: HTTP {response.status_code}, and no object")
        code = data.get("errcode", data.get("code", 0))
        if response.is_error or code != 0:
            text = data.get("errmsg") or data.get("msg") or data.get("message") or data.get("error_description") or ""
            raise ServiceRefused(f"{path}: HTTP {response.status_code}, {code} {str(text)[:200]}")
        return data


def _feishu(client: Client, provider: Workplace, code: str, back: str) -> Json:
    app = {"client_id": provider.client_id, "client_secret": provider.client_secret}
    exchange = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, **app}
    token = _needed(client.api("POST", "/open-apis/authen/v2/oauth/token", json=exchange), "access_token")
    who = client.api("GET", "/open-apis/authen/v1/user_info", headers=_bearer(token)).get("data") or {}
    if provider.tenant and who.get("tenant_key") != provider.tenant:
        raise NotAMember(f"of the tenant {who.get('tenant_key')}, not {provider.tenant}")
    email = who.get("enterprise_email") or who.get("email") or ""
    claims = {
        "sub": _needed(who, "union_id"), "name": who.get("name") or "", "email": email,
        "preferred_username": email or who.get("en_name") or who.get("name") or "",
    }  # fmt: skip
    own = {"app_id": provider.client_id, "app_secret": provider.client_secret}
    asking = client.api("POST", "/open-apis/auth/v3/tenant_access_token/internal", json=own)
    headers = _bearer(_needed(asking, "tenant_access_token"))
    ids = {"user_id_type": "open_id", "department_id_type": "open_department_id"}

    def department(each: str) -> tuple[str, str]:
        path = f"/open-apis/contact/v3/departments/{each}"
        row = (client.contacts("GET", path, headers=headers, params=ids).get("data") or {}).get("department") or {}
        return _needed(row, "name"), str(row.get("parent_department_id") or "0")

    try:
        path = f"/open-apis/contact/v3/users/{_needed(who, 'open_id')}"
        row = (client.contacts("GET", path, headers=headers, params=ids).get("data") or {}).get("user") or {}
        status = row.get("status") or {}
        if any(status.get(flag) for flag in ("is_frozen", "is_resigned", "is_exited")):
            raise NotAMember("frozen, or has left")
        return claims | {"groups": _groups(provider, row["department_ids"], department, root="0")}
    except (ServiceRefused, KeyError):  # the app may not read contacts
        return claims | UNKNOWN_GROUPS


def _dingtalk(client: Client, provider: Workplace, code: str) -> Json:
    app = {"clientId": provider.client_id, "clientSecret": provider.client_secret}
    exchange = {**app, "code": code, "grantType": "authorization_code"}
    token = _needed(client.api("POST", "/v1.0/oauth2/userAccessToken", json=exchange), "accessToken")
    who = client.api("GET", "/v1.0/contact/users/me", headers={"x-acs-dingtalk-access-token": token})
    union = _needed(who, "unionId")
    own = {"appKey": provider.client_id, "appSecret": provider.client_secret}
    params = {"access_token": _needed(client.api("POST", "/v1.0/oauth2/accessToken", json=own), "accessToken")}

    def result(path: str, body: Json) -> Json:
        answered = client.contacts("POST", path, params=params, json=body).get("result")
        return answered if isinstance(answered, dict) else {}

    try:
        member = result("/topapi/user/getbyunionid", {"unionid": union})
    except ServiceRefused as refused:
        raise NotAMember(f"not in the organisation's contacts: {refused}") from None
    if member.get("contact_type") != 0:
        raise NotAMember("an external contact")
    row = result("/topapi/v2/user/get", {"userid": _needed(member, "userid")})

    def department(each: str) -> tuple[str, str]:
        answered = result("/topapi/v2/department/get", {"dept_id": int(each)})
        return _needed(answered, "name"), str(answered.get("parent_id") or "1")

    email = row.get("org_email") or row.get("email") or ""
    claims = {
        "sub": union, "name": row.get("name") or who.get("nick") or "", "email": email,
        "preferred_username": email or member["userid"],
    }  # fmt: skip
    try:
        return claims | {"groups": _groups(provider, row["dept_id_list"], department, root="1")}
    except (ServiceRefused, KeyError):
        return claims | UNKNOWN_GROUPS


def _wecom(client: Client, provider: Workplace, code: str) -> Json:
    own = {"corpid": provider.client_id, "corpsecret": provider.client_secret}
    token = {"access_token": _needed(client.api("GET", "/cgi-bin/gettoken", params=own), "access_token")}
    who = client.api("GET", "/cgi-bin/auth/getuserinfo", params={**token, "code": code})
    userid = who.get("userid") or who.get("UserId")
    if not userid:
        raise NotAMember("no member of the organisation")
    claims = {"sub": str(userid), "preferred_username": str(userid), "name": "", "email": ""}
    try:
        row = client.contacts("GET", "/cgi-bin/user/get", params={**token, "userid": userid})
        if row.get("status") in (2, 5):
            raise NotAMember("disabled, or has left")
        claims |= {"name": row.get("name") or "", "email": row.get("biz_mail") or row.get("email") or ""}
        rows: dict[str, Json] = {}
        if provider.department_names:
            listed = client.contacts("GET", "/cgi-bin/department/list", params=token)["department"]
            rows = {str(each["id"]): each for each in listed}

        def department(each: str) -> tuple[str, str]:
            return _needed(rows[each], "name"), str(rows[each].get("parentid") or "1")

        return claims | {"groups": _groups(provider, row["department"], department, root="1")}
    except (ServiceRefused, KeyError):
        return claims | UNKNOWN_GROUPS


def _groups(
    provider: Workplace, ids: Iterable[Any], department: Callable[[str], tuple[str, str]], *, root: str
) -> list[str]:
    """The groups of these departments: `id:…` and, with `department_names`, the path below the root: /Research/Vision. Slashes
    in names are replaced, so that no name can look like another department's path. `department` returns name and parent of an
    id."""
    groups, known = list[str](), dict[str, tuple[str, str]]()
    for own in map(str, ids):
        groups.append(f"id:{own}")
        names, each = list[str](), own
        while provider.department_names and each != root:
            if each not in known:
                known[each] = department(each)
            name, each = known[each]
            names.insert(0, name.replace("/", "∕"))
            if len(names) > DEEPEST:
                raise ServiceRefused("departments above each other without an end")
        if provider.department_names:
            groups.append("/" + "/".join(names))
    return sorted(set(groups))


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _needed(data: Json, name: str) -> str:
    """The text of this name. Raises ServiceRefused if there is none."""
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise ServiceRefused(f"the answer has no {name}")
    return value
