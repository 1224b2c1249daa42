// App is the program in the images that the tests run: a small web server that
// says who it is and can be told to fail.
//
//	GET /            the host name: which pod answered
//	GET /caller      the address that the request came from
//	GET /healthz     200, or 500 after /fail
//	GET /fail, /mend turn health off and on
//	GET /env?name=N  an environment variable
//	GET /fetch?url=U what that URL answers from here
//	GET /exit        ends the process with code 1
//
// As `app sleep` it waits for ever, as `app print N [RATE]` it prints N numbered
// lines, RATE of them a second, as `app fetch URL` it is curl, as `app lookup NAME` it asks the resolver.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(run(os.Args[1], os.Args[2:]))
	}
	serve()
}

func run(what string, args []string) int {
	switch what {
	case "sleep":
		done := make(chan os.Signal, 1)
		signal.Notify(done, syscall.SIGTERM, os.Interrupt)
		<-done
	case "print":
		print(args)
	case "cat":
		io.Copy(os.Stdout, os.Stdin)
	case "fetch":
		if err := fetch(os.Stdout, args[0]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case "lookup":
		addresses, err := net.LookupHost(args[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for _, a := range addresses {
			fmt.Println(a)
		}
	case "read":
		data, err := os.ReadFile(args[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Stdout.Write(data)
	case "fail":
		return 1
	default:
		fmt.Fprintln(os.Stderr, "unknown command", what)
		return 2
	}
	return 0
}

func print(args []string) {
	n, _ := strconv.Atoi(args[0])
	rate := n
	if len(args) > 1 {
		rate, _ = strconv.Atoi(args[1])
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	start := time.Now()
	for i := range n {
		if due := start.Add(time.Duration(i) * time.Second / time.Duration(rate)); i%100 == 0 && len(args) > 1 {
			out.Flush()
			time.Sleep(time.Until(due))
		}
		fmt.Fprintln(out, "line", i+1)
	}
}

func fetch(w io.Writer, url string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get(url)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(w, reply.Body); err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", reply.Status)
	}
	return nil
}

func serve() {
	host, _ := os.Hostname()
	var sick atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, host) })
	mux.HandleFunc("/caller", func(w http.ResponseWriter, r *http.Request) {
		address, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, address)
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			http.Error(w, "sick", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/fail", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	mux.HandleFunc("/mend", func(http.ResponseWriter, *http.Request) { sick.Store(false) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, os.Getenv(r.FormValue("name"))) })
	mux.HandleFunc("/fetch", func(w http.ResponseWriter, r *http.Request) {
		if err := fetch(w, r.FormValue("url")); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	done := make(chan os.Signal, 1)
	signal.Notify(done, syscall.SIGTERM)
	go func() {
		<-done
		os.Exit(0)
	}()
	fmt.Println("serving on 8080 as", host)
	fmt.Println(http.ListenAndServe(":8080", mux))
	os.Exit(1)
}
