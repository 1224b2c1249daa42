package server

import (
	"mime"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"orrery.dev/server/registry"
)

// The media types of the API.
const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	typeCBOR     = "application/cbor"
)

// mediaType is the outcome of negotiation: the encoding, and the form (as) that
// the client wants objects in.
type mediaType struct {
	name string // typeJSON, typeYAML, typeProtobuf or typeCBOR
	// as is "", "Table", "PartialObjectMetadata" or
	// "PartialObjectMetadataList"; version is its version of meta.k8s.io.
	as, version string
	pretty      bool
}

// encodings lists those that a kind can be read and answered in, the preferred one
// first. Custom resources and a few others have no protobuf form; nil means our own
// objects (Status).
func (s *Server) encodings(k *registry.Kind) []string {
	all := []string{typeJSON, typeYAML}
	if k == nil || isProto(k.New()) {
		all = append(all, typeProtobuf)
	}
	if s.CBOR {
		all = append(all, typeCBOR)
	}
	return all
}

func isProto(obj any) bool {
	_, ok := obj.(protoMarshaler)
	return ok
}

// negotiate picks the encoding of the reply from the Accept header: the client's
// first preference that can be served. forms: not only as it is but also as a
// Table, or its metadata alone. streams are what could be had besides.
func negotiate(r *http.Request, offered []string, forms bool, streams ...string) (mediaType, error) {
	accept := r.Header.Values("Accept")
	if len(accept) == 0 {
		return mediaType{name: offered[0], pretty: wantsPretty(r)}, nil
	}
	clauses := parseAccept(strings.Join(accept, ","))
	if !anyOffered(clauses, offered) {
		return mediaType{}, errNoRepresentation(append(offered, streams...))
	}
	for _, clause := range clauses {
		if out, ok := clause.match(offered); ok && (forms || out.as != "Table") {
			out.pretty = out.pretty || wantsPretty(r)
			return out, nil
		}
	}
	return mediaType{}, errNotAcceptable(offered)
}

// anyOffered reports whether one of the encodings was asked for by its name: who asks
// for application/* alone gets nothing.
func anyOffered(clauses []acceptClause, offered []string) bool {
	return slices.ContainsFunc(clauses, func(c acceptClause) bool {
		return c.kind == "*/*" || slices.Contains(offered, c.kind) || c.kind == typeProtobuf
	})
}

// wantsPretty tells people from programs: ?pretty decides, else the user agents
// of command lines and browsers get indented JSON.
func wantsPretty(r *http.Request) bool {
	if pretty := r.URL.Query().Get("pretty"); pretty != "" {
		yes, _ := strconv.ParseBool(pretty)
		return yes
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

type acceptClause struct {
	kind    string
	params  map[string]string
	quality float64
}

func parseAccept(header string) []acceptClause {
	var clauses []acceptClause
	for _, part := range strings.Split(header, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := acceptClause{kind: kind, params: params, quality: 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.quality = q
		}
		clauses = append(clauses, c)
	}
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].quality > clauses[j].quality })
	return clauses
}

// takes tells whether the clause includes an encoding.
func (c acceptClause) takes(encoding string) bool {
	return c.kind == encoding || c.kind == "*/*" || c.kind == "application/*"
}

// match finds the offered encoding that the clause takes.
func (c acceptClause) match(offered []string) (mediaType, bool) {
	name := ""
	for _, o := range offered {
		if c.takes(o) {
			name = o
			break
		}
	}
	// Metadata and Table forms exist for every kind; metadata in protobuf too.
	if name == "" && c.kind == typeProtobuf && strings.HasPrefix(c.params["as"], "PartialObjectMetadata") {
		name = typeProtobuf
	}
	if name == "" {
		return mediaType{}, false
	}
	out := mediaType{name: name, pretty: c.params["pretty"] == "1"}
	if as := c.params["as"]; as != "" {
		if c.params["g"] != "meta.k8s.io" || c.params["v"] != "v1" && c.params["v"] != "v1beta1" {
			return mediaType{}, false
		}
		switch as {
		case "Table":
			if name == typeProtobuf || name == typeCBOR {
				return mediaType{}, false
			}
		case "PartialObjectMetadata", "PartialObjectMetadataList":
		default:
			return mediaType{}, false
		}
		out.as, out.version = as, "meta.k8s.io/"+c.params["v"]
	}
	return out, true
}

// inputType is the encoding of a request's body.
func inputType(r *http.Request, offered []string) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return typeJSON, nil
	}
	kind, _, err := mime.ParseMediaType(header)
	if err == nil {
		for _, o := range offered {
			if kind == o {
				return kind, nil
			}
		}
	}
	return "", errUnsupportedMediaType(offered)
}
