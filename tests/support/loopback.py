"""Requests over plain HTTP on loopback, without a context of TLS: to make one takes longer than most requests do."""

from functools import partial

import httpx

PLAIN = httpx.create_ssl_context(verify=False)
Client = partial(httpx.Client, verify=PLAIN)
get, post, request = (partial(send, verify=PLAIN) for send in (httpx.get, httpx.post, httpx.request))
