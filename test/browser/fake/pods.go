package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// serveLog writes some lines at once and then one a second.
func serveLog(w http.ResponseWriter, r *http.Request) {
	line := func(n int, at time.Time) {
		level, text := "\x1b[32mINFO\x1b[0m", fmt.Sprintf("GET /api/items?page=%d 200 %dms", n, 3+n%40)
		if n%17 == 0 {
			level, text = "\x1b[33mWARN\x1b[0m", "slow query took 1.2s, 資料庫回應緩慢"
		}
		if n%53 == 0 {
			level, text = "\x1b[1;31mERROR\x1b[0m", "connection reset by peer, retrying"
		}
		fmt.Fprintf(w, "%s %s %s\n", at.UTC().Format(time.RFC3339Nano), level, text)
	}
	for n := range 400 {
		line(n, time.Now().Add(time.Duration(n-400)*time.Second))
	}
	if r.URL.Query().Get("follow") == "" {
		return
	}
	for n := 400; ; n++ {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(700 * time.Millisecond):
		}
		line(n, time.Now())
	}
}

// serveShell is a shell that knows two commands, over the exec protocol.
func serveShell(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	say := func(channel byte, text string) {
		_ = c.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, text...))
	}
	size, line := "", ""
	for {
		_, m, err := c.ReadMessage()
		if err != nil || len(m) == 0 {
			return
		}
		if m[0] == 4 {
			if size == "" {
				say(1, "/ # ")
			}
			size = string(m[1:])
			continue
		}
		for _, key := range string(m[1:]) {
			if key != '\r' {
				line += string(key)
				say(1, string(key))
				continue
			}
			switch strings.TrimSpace(line) {
			case "exit":
				say(3, `{"status":"Success"}`)
				return
			case "stty size":
				say(1, "\r\n"+size+"\r\n/ # ")
			default:
				say(1, "\r\nsh: "+line+": not found\r\n/ # ")
			}
			line = ""
		}
	}
}
