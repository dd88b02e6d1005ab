"""Main packages in Go that no module has in the form needed here; `gobuild` compiles them."""

from __future__ import annotations

PAUSE = """\
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
"""

# The order in which CoreDNS asks its plugins; each is a package of its module.
_PLUGINS = ("bind", "debug", "ready", "health", "errors", "log", "cache", "hosts", "kubernetes", "loop", "forward")
_IMPORTS = "\n".join(f'\t_ "github.com/coredns/coredns/plugin/{name}"' for name in _PLUGINS)
_ORDER = ", ".join(f'"{name}"' for name in _PLUGINS)
COREDNS = f"""\
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
{_IMPORTS}
)

func main() {{
	dnsserver.Directives = []string{{{_ORDER}}}
	coremain.Run()
}}
"""
