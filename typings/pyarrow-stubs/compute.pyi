# pyarrow makes these functions when it is imported, where a type checker does not see them. The rest of pyarrow is
# taken as it is.
from typing import Any

def __getattr__(name: str) -> Any: ...
