"""Every provider that has a profile."""

from tests.endpoints.providers.hosted import HOSTED
from tests.endpoints.providers.local import LOCAL
from tests.endpoints.providers.open_models import OPEN_MODELS
from tests.endpoints.providers.routers import ROUTERS

PROVIDERS = (*HOSTED, *OPEN_MODELS, *ROUTERS, *LOCAL)
