// The program of the tests' containers: a server that is not ready until told, and knows when it began.
//
// GET /ready is its readiness probe; POST /ready and POST /unready change the answer; GET /began is the time of its
// start. READY_AFTER (such as 500ms) makes it ready by itself so long after its start. It writes what it is told to
// its log. GET /fetch?url=… answers with what it gets from there, GET /lookup?name=… with the addresses of a name.
// `serve echo WORDS` says the words and what it reads, and ends with 7. `serve fail WORDS` says them as an error and ends
// with 1. `serve need NAME` ends so if the name has no address, and serves otherwise.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	began := time.Now()
	if len(os.Args) > 1 && os.Args[1] == "echo" {
		fmt.Println(strings.Join(os.Args[2:], " "))
		io.Copy(os.Stdout, os.Stdin)
		os.Exit(7)
	}
	if len(os.Args) > 1 && os.Args[1] == "fail" {
		fmt.Fprintln(os.Stderr, strings.Join(os.Args[2:], " "))
		os.Exit(1)
	}
	if len(os.Args) > 2 && os.Args[1] == "need" {
		if _, err := net.LookupHost(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	name, _ := os.Hostname()
	fmt.Println("serving as", name)
	var ready atomic.Bool
	if after, err := time.ParseDuration(os.Getenv("READY_AFTER")); err == nil {
		time.AfterFunc(after, func() { ready.Store(true) })
	}
	http.HandleFunc("/", func(out http.ResponseWriter, asked *http.Request) {
		switch {
		case asked.Method == http.MethodPost:
			ready.Store(asked.URL.Path == "/ready")
			fmt.Println("told", asked.URL.Path)
		case asked.URL.Path != "/began" && !ready.Load():
			out.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(out, "%.3f", float64(began.UnixMilli())/1000)
	})
	http.HandleFunc("/fetch", func(out http.ResponseWriter, asked *http.Request) {
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get(asked.URL.Query().Get("url"))
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		out.WriteHeader(answer.StatusCode)
		io.Copy(out, answer.Body)
	})
	http.HandleFunc("/lookup", func(out http.ResponseWriter, asked *http.Request) {
		found, err := net.LookupHost(asked.URL.Query().Get("name"))
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprint(out, strings.Join(found, " "))
	})
	http.HandleFunc("/name", func(out http.ResponseWriter, asked *http.Request) { fmt.Fprint(out, name) })
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	go func() { <-told; os.Exit(0) }()
	if err := http.ListenAndServe(":8080", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
