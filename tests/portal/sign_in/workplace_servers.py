"""A simulation of Feishu, DingTalk and WeCom: a server that answers as their documentation says, and checks its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CODE, APP, SECRET = "the-code", "app-1", "s3cret-of-the-app"
Answer = dict[str, Any]


@dataclass
class Simulation:
    """The person who returns with the code, and the organisation's departments. `tree`: id → (name, parent)."""

    url: str = ""
    person: str = "on_mia"
    name: str = "Mia Wong"
    email: str = "mia@example.org"
    departments: list[str] = field(default_factory=lambda: ["20"])
    tree: dict[str, tuple[str, str]] = field(default_factory=lambda: {"10": ("研发部", ""), "20": ("视觉组", "10")})
    outsider: bool = False
    left: bool = False
    refuses: str = ""  # prefix of paths that are refused
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str, query: dict[str, str], body: Answer, headers: dict[str, str]) -> tuple[int, Answer]:
        if self.refuses and path.startswith(self.refuses):
            return (
                (400, {"code": 99991672, "msg": "no permission"}) if "open-apis" in path else (200, {"errcode": 60011})
            )
        for part, act in (("/open-apis/", self.feishu), ("/cgi-bin/", self.wecom)):
            if path.startswith(part):
                return act(path.removeprefix(part), query, body, headers)
        return self.dingtalk(path, query, body, headers)

    def feishu(self, path: str, query: Answer, body: Answer, headers: Answer) -> tuple[int, Answer]:
        bearer = headers.get("authorization")
        if path == "authen/v2/oauth/token":
            good = (body["code"], body["client_id"], body["client_secret"]) == (CODE, APP, SECRET) and body[
                "redirect_uri"
            ]
            token = {"code": 0, "access_token": "u-1", "token_type": "Bearer", "expires_in": 7200}
            return (200, token) if good else (400, {"code": 20003, "error": "invalid_grant"})
        if path == "authen/v1/user_info" and bearer == "Bearer u-1":
            profile = {"name": self.name, "open_id": "ou_1", "union_id": self.person, "enterprise_email": self.email}
            return 200, {"code": 0, "data": {**profile, "tenant_key": "other" if self.outsider else "ours"}}
        if path == "auth/v3/tenant_access_token/internal" and body == {"app_id": APP, "app_secret": SECRET}:
            return 200, {"code": 0, "tenant_access_token": "t-1", "expire": 7200}
        if bearer == "Bearer t-1" and path == "contact/v3/users/ou_1":
            row = {"department_ids": self.departments, "status": {"is_resigned": self.left}}
            return 200, {"code": 0, "data": {"user": row}}
        if bearer == "Bearer t-1" and path.startswith("contact/v3/departments/"):
            name, parent = self.tree[path.rpartition("/")[2]]
            return 200, {"code": 0, "data": {"department": {"name": name, "parent_department_id": parent or "0"}}}
        return 400, {"code": 99991663, "msg": "not found"}

    def dingtalk(self, path: str, query: Answer, body: Answer, headers: Answer) -> tuple[int, Answer]:
        if path == "/v1.0/oauth2/userAccessToken":
            good = (body["code"], body["clientId"], body["clientSecret"]) == (CODE, APP, SECRET)
            token = {"accessToken": "u-1", "refreshToken": "r", "expireIn": 7200}
            return (200, token) if good else (400, {"code": "invalidParameter.authCode", "message": "bad code"})
        if path == "/v1.0/contact/users/me" and headers.get("x-acs-dingtalk-access-token") == "u-1":
            return 200, {"nick": self.name, "unionId": self.person, "openId": "o-1"}
        if path == "/v1.0/oauth2/accessToken" and body == {"appKey": APP, "appSecret": SECRET}:
            return 200, {"accessToken": "a-1", "expireIn": 7200}
        if query.get("access_token") != "a-1":
            return 200, {"errcode": 40014, "errmsg": "bad token"}
        if path == "/topapi/user/getbyunionid":
            if self.outsider or self.left:
                return 200, {"errcode": 60121, "errmsg": "user not found"}
            return 200, {"errcode": 0, "result": {"contact_type": 0, "userid": "mia"}}
        if path == "/topapi/v2/user/get" and body["userid"] == "mia":
            row = {"name": self.name, "org_email": self.email, "dept_id_list": [int(each) for each in self.departments]}
            return 200, {"errcode": 0, "result": row}
        if path == "/topapi/v2/department/get":
            name, parent = self.tree[str(body["dept_id"])]
            return 200, {"errcode": 0, "result": {"name": name, "parent_id": int(parent or 1)}}
        return 404, {"code": "NotFound"}

    def wecom(self, path: str, query: Answer, body: Answer, headers: Answer) -> tuple[int, Answer]:
        if path == "gettoken":
            good = (query["corpid"], query["corpsecret"]) == (APP, SECRET)
            return 200, {"errcode": 0, "access_token": "a-1"} if good else {"errcode": 40001, "errmsg": "bad secret"}
        if query.get("access_token") != "a-1":
            return 200, {"errcode": 40014, "errmsg": "bad token"}
        if path == "auth/getuserinfo":
            if query["code"] != CODE:
                return 200, {"errcode": 40029, "errmsg": "invalid code"}
            return 200, {"errcode": 0} | ({"openid": "x"} if self.outsider else {"userid": self.person})
        if path == "user/get" and query["userid"] == self.person:
            row = {"name": self.name, "department": [int(each) for each in self.departments], "biz_mail": self.email}
            return 200, {"errcode": 0, "status": 5 if self.left else 1, **row}
        if path == "department/list":
            rows = [{"id": int(pk), "name": name, "parentid": int(up or 1)} for pk, (name, up) in self.tree.items()]
            return 200, {"errcode": 0, "department": [{"id": 1, "name": "Company", "parentid": 0}, *rows]}
        return 200, {"errcode": 60003, "errmsg": "not found"}


@contextmanager
def simulated() -> Iterator[Simulation]:
    simulation = Simulation()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            simulation.asked.append(parts.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = simulation.answer(parts.path, query, json.loads(body or b"{}"), headers)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    simulation.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield simulation
    finally:
        server.shutdown()
        server.server_close()
