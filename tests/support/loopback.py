"""A client for plain HTTP on loopback. It makes no TLS context, which would take longer than most requests."""

from functools import partial

import httpx

PLAIN = httpx.create_ssl_context(verify=False)
Client = partial(httpx.Client, verify=PLAIN)
get, post, request = (partial(send, verify=PLAIN) for send in (httpx.get, httpx.post, httpx.request))
