"""All settings, in one flat file. Those that differ between installations are environment variables (see .env.example)."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import environ
from csp.constants import NONCE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from portal.infra import env, logs
from portal.infra.providers import directories, identity_providers, saml, workplaces
from portal.infra.telemetry import destinations

BASE_DIR = Path(__file__).resolve().parent.parent
# The newest version of the changelog: its first heading with a number, such as `## [0.1.0] - 2026-11-25`.
VERSION = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (BASE_DIR / "CHANGELOG.md").read_text(), re.MULTILINE)[0]

DEBUG = env.boolean("DEBUG")
# The embedded cluster runs commands as local processes: it is for one person's machine only.
EMBEDDED = env.boolean("EMBEDDED")
DATA_DIR = Path(env.text("DATA_DIR", str(BASE_DIR / ".demo")))
BIND_HOST = env.text("BIND_HOST", "127.0.0.1")
PORT = env.integer("PORT", 8000, 1)
NOTEBOOK_PORT = env.integer("NOTEBOOK_PORT", 8001, 1)
BASE_URL = env.text("BASE_URL", f"http://{BIND_HOST}:{PORT}").rstrip("/")
# Notebooks are served from their own origin: a user's script never runs on the portal's. `*` stands for the workload's
# id, so that each has an origin of its own; browsers resolve every name below localhost to this machine.
NOTEBOOK_URL = env.text("NOTEBOOK_URL", f"http://*.localhost:{NOTEBOOK_PORT}").rstrip("/")
SENDER_OF = "portal.server.intake.sender_of"  # finds the sender of a large body
NOTEBOOK_APPLICATION = "workloads.notebooks.proxy.application"
WEB_WORKERS = env.integer("WEB_WORKERS", 2, 1)  # processes
WEB_THREADS = env.integer("WEB_THREADS", 4, 1)  # for pages and API, in each

SECRET_KEY = env.text("SECRET_KEY", "only-for-debug-" + "x" * 40 if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY is not set: give SECRET_KEY or SECRET_KEY_FILE (see .env.example)")
# Encrypts kubeconfigs and secret environment values; comma-separated, the first one encrypts, all decrypt.
ENCRYPTION_KEYS = env.words("ENCRYPTION_KEYS")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ",".join({"localhost", "127.0.0.1", urlsplit(BASE_URL).hostname or ""}))
CSRF_TRUSTED_ORIGINS = [BASE_URL]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "template_partials",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.socialaccount.providers.saml",  # its library is an extra, imported when it is used
    "csp",
    "portal",
    "quotas",
    "workloads",
]

MIDDLEWARE = [
    "portal.web.middleware.client_address",
    "portal.server.health.probes",  # a probe addresses the pod by IP: before hosts are checked
    "portal.web.middleware.request_id",
    "portal.web.middleware.no_null",
    "portal.web.middleware.CompressedPages",
    "django.middleware.security.SecurityMiddleware",
    "portal.web.middleware.ContentSecurityPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "portal.web.middleware.Slashes",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "portal.web.middleware.preferences",  # after authentication: the user's language and zone override the browser's
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.web.middleware.problems",
    "allauth.account.middleware.AccountMiddleware",
    "portal.sign_in.second_factor.required",
]

ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
ASGI_APPLICATION = "portal.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "portal.web.pages.frame",
            ],
            "builtins": [
                "template_partials.templatetags.partials",
                "portal.templatetags.portal",
                "workloads.templatetags.sharing",
            ],
        },
    }
]

# One outermost durable transaction per write, opened by the action itself: see docs/concurrency.md.
DATABASE_URL = env.text("DATABASE_URL", f"sqlite:///{DATA_DIR / 'portal.sqlite3'}")
DATABASES = {"default": environ.Env.db_url_config(DATABASE_URL)}
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    PREPARE = env.boolean("DATABASE_PREPARE", True)
    DATABASES["default"]["OPTIONS"] = {
        "pool": {"min_size": 1, "max_size": env.integer("DATABASE_POOL", 8, 1), "timeout": 10},
        "server_side_binding": PREPARE,
        "prepare_threshold": 3 if PREPARE else None,
        # A longer wait for a pool group's row means that another process is stuck: 503 and a retry instead.
        "options": "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
    }
    # A connection that the server has closed in the meantime (restart, failover, a proxy's limit) is replaced when it is taken
    # from the pool.
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.text("REDIS_URL")
CACHES = (
    {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
    if REDIS_URL
    else {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
)

CELERY_BROKER_URL = REDIS_URL or "memory://localhost/"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_DB_REUSE_MAX = 10**9  # see portal/celery.py
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = "portal"
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {"visibility_timeout": 300, "polling_interval": 0.05}
    if not REDIS_URL
    else {
        "visibility_timeout": 300,
        "socket_timeout": 5,
        "socket_connect_timeout": 5,
    }
)
CELERY_TIMEZONE = "UTC"

# Defaults and rules for all pools (docs/quota-rules.md).
FAIR_SHARING = env.boolean("FAIR_SHARING")
STARVATION_AFTER = env.integer("STARVATION_AFTER", 600)
RESTART_COST = env.integer("RESTART_COST", 60)
QUEUED_PER_PERSON = env.integer("QUEUED_PER_PERSON", 1000, 1)
PLAN_DAYS = env.integer("PLAN_DAYS", 90, 1)
METERED_DAYS = env.integer("METERED_DAYS", 400, 2)
CURRENCY = env.text("CURRENCY", "CNY")  # of prices: a name or a sign; nothing is converted
if not re.fullmatch(r"[^\W\d_]{1,8}|[$€£¥₩₹]", CURRENCY):
    raise ImproperlyConfigured(f"CURRENCY must be letters such as CNY or EUR, or a sign such as €, not {CURRENCY!r}")

AUTH_USER_MODEL = "portal.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
# Identity providers and directories (docs/sign-in.md).
OPENID_PROVIDERS = identity_providers.read(env.text("OIDC_PROVIDERS"))
IDENTITY_PROVIDERS = identity_providers.distinct(
    [
        *OPENID_PROVIDERS,
        *workplaces.read(env.text("WORKPLACE_PROVIDERS")),
        *saml.read(env.text("SAML_PROVIDERS")),
        *directories.read(env.text("LDAP_DIRECTORIES")),
    ]
)
# False: only operators created by `bootstrap` can log in with a password of the portal.
PASSWORD_SIGN_IN = env.boolean("PASSWORD_SIGN_IN", True)
if not PASSWORD_SIGN_IN and not IDENTITY_PROVIDERS:
    raise ImproperlyConfigured(
        "PASSWORD_SIGN_IN=false without OIDC_PROVIDERS, WORKPLACE_PROVIDERS, SAML_PROVIDERS or LDAP_DIRECTORIES lets nobody in: "
        "add a provider, or leave passwords on"
    )
# true: operators who log in by password must have a second factor.
SECOND_FACTOR_FOR_OPERATORS = env.boolean("SECOND_FACTOR_FOR_OPERATORS")
MFA_ADAPTER = "portal.sign_in.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_FORMS = {
    "add_webauthn": "portal.sign_in.passkeys.AddForm",
    "authenticate_webauthn": "portal.sign_in.passkeys.AuthenticateForm",
    "edit_webauthn": "portal.sign_in.passkeys.RenameForm",
    "login_webauthn": "portal.sign_in.passkeys.LoginForm",
    "reauthenticate_webauthn": "portal.sign_in.passkeys.ConfirmForm",
}
MFA_RATE_LIMITS = {"webauthn_login": "300/m/ip"}  # nothing can be guessed; many people may share an address
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = "GPU quota portal"
MFA_TOTP_TOLERANCE = 1  # steps of 30 s that a clock may be off
PASSWORD_RESET_TIMEOUT = 2 * 3600  # s
ACCOUNT_ADAPTER = "portal.sign_in.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]  # required by allauth, though nobody can sign up
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_PRESERVE_USERNAME_CASING = True
ACCOUNT_UNIQUE_EMAIL = False
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_REAUTHENTICATION_METHODS = {"password", "mfa"}
ACCOUNT_FORMS = {"user_token": "portal.views.login.TokenForm"}
SOCIALACCOUNT_ADAPTER = "portal.sign_in.adapters.ProviderAdapter"
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [each.as_app() for each in OPENID_PROVIDERS]}}
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # an equal e-mail address does not give access to an account
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_QUERY_EMAIL = False
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_REQUESTS_TIMEOUT = 8  # s
# amount/time/per what: IP address (ip), or a key of portal/sign_in/guesses.py (key)
ACCOUNT_RATE_LIMITS = {
    "login": None,  # failures are counted instead
    "login_failed": "60/15m/ip,8/15m/key",  # per address; per name from one address
    "login_failed_known": "8/15m/key",  # per browser that has signed in with the name before
    "login_failed_name": "100/60m/key",  # per name, from all browsers that have not
    "reset_password": "20/15m/ip,3/15m/key",
    "reset_password_from_key": "60/15m/ip",
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "portal.text.formats"
USE_I18N = True
USE_TZ = True
TIME_ZONE = env.text("TIME_ZONE", "UTC")

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = DEBUG

SECURE_BROWSER = BASE_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_BROWSER
# Browsers accept such a name only from this very host over HTTPS, never from a sibling or subdomain through `domain=`.
SESSION_COOKIE_NAME = "__Host-sessionid" if SECURE_BROWSER else "sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken" if SECURE_BROWSER else "csrftoken"
# Not in a cookie, which other hosts could set.
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = False  # the proxy in front does it
BEHIND_PROXY = env.boolean("BEHIND_PROXY")
# The networks of our proxies: only their headers about the client's address and scheme are trusted.
PRIVATE = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"
PROXY_ADDRESSES = env.networks("PROXY_ADDRESSES", PRIVATE if BEHIND_PROXY else "")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_BROWSER else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": ["'none'"],
        "base-uri": [SELF],
        "form-action": [SELF, NOTEBOOK_URL, *(origin for each in IDENTITY_PROVIDERS for origin in each.origins)],
        "frame-ancestors": ["'none'"],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 2**20
LOG_KEPT = env.integer("LOG_KEPT_MIB", 64, 1) * 2**20  # per run, before compression; its ranks share it
FILE_UPLOAD_LIMIT = env.integer("FILE_UPLOAD_LIMIT_MIB", 512, 1) * 2**20

EMAIL_URL = env.text("EMAIL_URL", f"filemail:///{DATA_DIR}/mail" if DEBUG else "dummymail://")
vars().update(environ.Env.email_url_config(EMAIL_URL))
EMAIL_TIMEOUT = 8  # s for each step of a mail; Django's default has no limit
DEFAULT_FROM_EMAIL = env.text("EMAIL_FROM", "gpu-portal@localhost")
# Webhooks go only to these hosts (exact names, or ".example.org" for all below it).
WEBHOOK_HOSTS = env.words("WEBHOOK_HOSTS", "qyapi.weixin.qq.com,open.feishu.cn,oapi.dingtalk.com,hooks.slack.com")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.accounts.bearer_tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "portal.api.schema.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "portal.api.pagination.CursorPages",
    "EXCEPTION_HANDLER": "portal.web.problems.handler",
    "DEFAULT_THROTTLE_CLASSES": ["portal.api.throttle.PerHolder"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
API_RATE_PER_MINUTE = env.integer("API_RATE_PER_MINUTE", 1200, 1)
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU quota portal",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_SETTINGS": """{
        deepLinking: true,
        presets: [SwaggerUIBundle.presets.apis, forEverybody], // static/swagger.js
        syntaxHighlight: {theme: "tomorrow-night"},
    }""",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "portal.api.operations.add_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "BacktestStateEnum": "workloads.models.BacktestState",
        "BudgetActionEnum": "quotas.models.BudgetAction",
        "ClaimStateEnum": "quotas.models.ClaimState",
        "ClusterKindEnum": "quotas.models.ClusterKind",
        "GroupRoleEnum": "portal.api.group_rules.ROLES",
        "KindEnum": "workloads.models.Kind",
        "PresetKindEnum": "workloads.models.CHOICES",
        "RoleEnum": "portal.models.Role.values",
        "StateEnum": "workloads.models.State",
    },
}

# Functions of quotas that list what changing or pausing a department breaks, which portal requires to be confirmed.
DEPARTMENT_BREAKS = "quotas.previews.department_move.breaks_of_change"
WORK_OF = "quotas.previews.person_work.names_of"  # workloads of a person who leaves a department
PAUSE_BREAKS = "quotas.previews.department_move.breaks_of_pause"

# Sources of /metrics, which is readable with this token or, without one, from this machine only.
METRICS = ["portal.server.metrics.collect", "quotas.metrics.collect", "workloads.metrics.collect"]
# Sources of measured use for reports (quotas/reports/measured.py) and the card map; "": nothing is measured.
MEASURED_USE = "workloads.measurement.totals.used"
CARD_ACTIVITY = "workloads.measurement.heat.activity"
METRICS_TOKEN = env.text("METRICS_TOKEN")

# Off unless set (docs/operations.md, "Traces and errors").
TRACES, ERRORS = destinations.collector(), destinations.sentry()
LOGGING = logs.config(json=not DEBUG, level=env.text("LOG_LEVEL", "INFO"), report=ERRORS is not None)
LOGGING_CONFIG = "portal.infra.logs.configure"
