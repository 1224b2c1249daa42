package storage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// token is where a list in pages goes on: upstream's format, so that clients
// may go from one kind of server to the other between pages.
type token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`    // -1: whatever is newest, because the first page's is compacted
	Start    string `json:"start"` // below the listed prefix
}

const tokenVersion = "meta.k8s.io/v1"

func (t token) encode() string {
	t.Version = tokenVersion
	b, _ := json.Marshal(t) // two strings and a number
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(s string) (token, error) {
	t, err := parseToken(s)
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	return t, nil
}

func parseToken(s string) (t token, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	switch {
	case err != nil:
		return t, fmt.Errorf("continue key is not valid: %w", err)
	case t.Version != tokenVersion:
		return t, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.Version)
	case t.Revision == 0:
		return t, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)", tokenVersion)
	case t.Start == "":
		return t, fmt.Errorf("continue key is not valid: encoded start key empty (version %s)", tokenVersion)
	}
	// A token is the client's to forge: it must not lead out of the prefix.
	key := t.Start
	if !strings.HasPrefix(key, "/") {
		key = "/" + key
	}
	if path.Clean(key) != key {
		return t, fmt.Errorf("continue key is not valid: %v", t.Start)
	}
	t.Start = key[1:]
	return t, nil
}
