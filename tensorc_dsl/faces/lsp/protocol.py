"""The messages of the protocol: every request has an answer, whatever its parameters are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from attrs import fields_dict
from cattrs import transform_error
from lsprotocol import types as lsp
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import LanguageServerProtocol, default_converter

if TYPE_CHECKING:
    from cattrs import Converter


MOST = 500
"""The most characters of a message about parameters."""


class Answering(LanguageServerProtocol):
    """The library's protocol, which leaves a request that it cannot read without an answer. This one replies with the error.

    The library reads each JSON object by itself as soon as it ends, so an object among the arguments of a command could be
    taken for a message. Here a message gets its types when all of it is there.
    """

    def structure_message(self, data: dict[str, Any]) -> Any:
        return data

    def handle_message(self, message: Any) -> None:
        request = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        number, method = request.get("id"), request.get("method")
        if request.get("jsonrpc") != self.VERSION or ("id" in request and not _is_id(number)):
            self._refuse(number, JsonRpcInvalidRequest("this is no message of JSON-RPC 2.0"))
        elif method is None:
            self._take(request)  # the editor answers
        elif not isinstance(method, str):
            self._refuse(number, JsonRpcInvalidRequest("the method is no string"))
        elif "id" not in request:
            if self._workspace is not None or method == lsp.EXIT:
                self._take(_call(request))
        elif self._shutdown:
            self._refuse(number, JsonRpcInvalidRequest("the server has been shut down"))
        elif self._workspace is None and method != lsp.INITIALIZE:
            self._refuse(number, JsonRpcServerNotInitialized("the first request is `initialize`"))
        elif self._is_notification(method):
            self._refuse(number, JsonRpcMethodNotFound(f"`{method}` is a notification, which has no id"))
        else:
            self._take(_call(request))

    def _execute_handler(
        self,
        msg_id: int | str,
        handler: Callable[..., Any],
        callback: Callable[[Any], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Handle a message, and keep nothing of it when that is done. The library keeps each notification's future."""
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        future = self._request_futures.get(msg_id)
        if future is not None:
            future.add_done_callback(lambda _: self._request_futures.pop(msg_id, None))

    def _is_notification(self, method: str) -> bool:
        known = self.get_message_type(method)
        return known is not None and "id" not in fields_dict(known)

    def _take(self, message: dict[str, Any]) -> None:
        """Handle a message of which only the parameters may be wrong; a notification with wrong ones is left out."""
        try:
            typed: Any = super().structure_message(message)
        except JsonRpcException as e:
            if "method" in message and "id" in message:
                self._refuse(message["id"], JsonRpcInvalidParams(_why(e.__cause__)))
            return
        params = getattr(typed, "params", None)
        if isinstance(params, lsp.ExecuteCommandParams) and params.arguments is None:
            params.arguments = []  # the library reports how many are missing
        if isinstance(params, lsp.CancelParams) and not _is_id(params.id):
            return
        super().handle_message(typed)

    def cannot_read(self) -> None:
        """Reply to a message that is not JSON; the request is unknown."""
        self._refuse(None, JsonRpcParseError("the message is not JSON"))

    def _refuse(self, number: object, why: JsonRpcException) -> None:
        known = number if _is_id(number) else None
        error = {"code": why.code, "message": why.message}
        self._send_data({"jsonrpc": self.VERSION, "id": known, "error": error})


def _is_id(number: object) -> bool:
    return isinstance(number, int | str) and not isinstance(number, bool)


def _call(message: dict[str, Any]) -> dict[str, Any]:
    """What a request or a notification has, with parameters."""
    return {"params": None, **{k: v for k, v in message.items() if k in ("jsonrpc", "id", "method", "params")}}


def _why(error: BaseException | None) -> str:
    """What is wrong with some parameters, and where."""
    if not isinstance(error, Exception):
        return "the parameters cannot be read"
    return "; ".join(transform_error(error, path="message"))[:MOST]


# Answers about whole documents: they have thousands of places, and are kept in the form in which they are sent.


Json = dict[str, Any]
"""An object of the protocol, with the protocol's own names."""


class Ready(list[Json]):
    """A list of objects that is sent as it is: turning typed ones into these takes longer than finding them."""


def lsp_converter() -> Converter:
    """The library's, which leaves what is ready alone."""
    found = default_converter()
    found.register_unstructure_hook(Ready, lambda answer: answer)
    found.register_unstructure_hook(lsp.SemanticTokens, _tokens)
    found.register_unstructure_hook(lsp.SemanticTokensEdit, _edit)
    return found


def _tokens(answer: lsp.SemanticTokens) -> Json:
    named = {} if answer.result_id is None else {"resultId": answer.result_id}
    return {**named, "data": answer.data}


def _edit(answer: lsp.SemanticTokensEdit) -> Json:
    return {"start": answer.start, "deleteCount": answer.delete_count, "data": answer.data}
