package differential

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"orrery.dev/test/conformance/lab"
)

// server is one of the two.
type server struct {
	url       string
	admin     *http.Client
	anonymous *http.Client
}

func newServer(t *testing.T, p *lab.PKI, url string) *server {
	client := func(user string) *http.Client {
		return &http.Client{
			Timeout:       20 * time.Second,
			Transport:     &http.Transport{TLSClientConfig: p.TLS(t, user), DisableCompression: true, MaxIdleConnsPerHost: 8},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &server{url: url, admin: client("admin"), anonymous: client("")}
}

// patience is how long a step is sent again for what it waits for.
const patience = 30 * time.Second

// do sends a step with its values filled in until the answer is what it waits for,
// and keeps what it asks for.
func (s *server) do(ctx context.Context, step Step, values map[string]string) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var unsent error
	late := lab.Eventually(ctx, func(ctx context.Context) (string, error) {
		var body []byte
		if answer, body, unsent = s.send(ctx, step, values); unsent != nil {
			return "", nil
		}
		for name, path := range step.Keep {
			values[name] = lookUp(body, path)
		}
		return step.missing(answer.Code, body), nil
	})
	return answer, errors.Join(unsent, late)
}

// missing is what the answer to a step has not yet.
func (s Step) missing(code int, body []byte) string {
	for path, want := range s.Until {
		got := strconv.Itoa(code)
		if path != "code" {
			got = lookUp(body, path)
		}
		if got != want {
			return fmt.Sprintf("%s is %q, not %q", path, got, want)
		}
	}
	return ""
}

func (s *server) send(ctx context.Context, step Step, values map[string]string) (Answer, []byte, error) {
	fill := func(text string) string {
		for name, value := range values {
			text = strings.ReplaceAll(text, "${"+name+"}", value)
		}
		return text
	}
	contentType, body, err := step.body(fill)
	if err != nil {
		return Answer{}, nil, fmt.Errorf("body: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, step.Method, s.url+fill(step.Path), bytes.NewReader(body))
	if err != nil {
		return Answer{}, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	client := s.admin
	for key, value := range step.Header {
		if key == "Anonymous" {
			client = s.anonymous
			continue
		}
		req.Header.Set(key, fill(value))
	}
	response, err := client.Do(req)
	if err != nil {
		return Answer{}, nil, err
	}
	defer response.Body.Close()
	got, err := content(response)
	if err != nil {
		return Answer{}, nil, err
	}
	return newAnswer(response, got), got, nil
}

// body is what a step sends.
func (s Step) body(fill func(string) string) (contentType string, body []byte, err error) {
	body = []byte(fill(s.Body))
	contentType, given := s.Header["Content-Type"]
	switch {
	case !given && len(body) > 0:
		contentType = "application/json"
		body, err = yaml.YAMLToJSON(body)
	case strings.HasSuffix(contentType, "cbor"):
		var v any
		if err = yaml.Unmarshal(body, &v); err == nil {
			body, err = direct.Marshal(v)
		}
	}
	return contentType, body, err
}

// content is the body of a response, decompressed.
func content(r *http.Response) ([]byte, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(body)
}

// lookUp is the value at a path of a JSON document.
func lookUp(body []byte, path string) string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return "none"
	}
	p := jsonpath.New("keep").AllowMissingKeys(true)
	if err := p.Parse("{." + path + "}"); err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	if err := p.Execute(&out, v); err != nil {
		return err.Error()
	}
	return out.String()
}
