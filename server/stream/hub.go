package stream

import (
	"log/slog"
	"net/http"

	"github.com/gorilla/websocket"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
)

// Config is what a hub is made of.
type Config struct {
	Source     Source
	Authorizer Authorizer
	// User is whom the server authenticated the request as; nil refuses it.
	User func(*http.Request) user.Info
	Log  *slog.Logger // nil: silence
}

// Hub serves the row protocol at api.StreamPath.
type Hub struct {
	config   Config
	upgrader websocket.Upgrader
}

// New makes a hub.
func New(c Config) *Hub {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{config: c, upgrader: websocket.Upgrader{
		Subprotocols:      []string{api.StreamProtocol},
		EnableCompression: true,
		// CheckOrigin stays gorilla's: a browser may only connect from a page
		// of the same host.
	}}
}

// ServeHTTP serves one connection, until the client goes or the request's
// context ends.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := h.config.User(r)
	if who == nil {
		http.Error(w, "not authenticated", http.StatusUnauthorized)
		return
	}
	socket, err := h.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has answered
	}
	defer socket.Close()
	c := newConnection(h.config, who, socket)
	if err := c.run(r.Context()); err != nil {
		h.config.Log.Debug("stream connection ended", "user", who.GetName(), "err", err)
	}
}
