package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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

// do sends a step with its values filled in, and keeps those it asks for.
func (s *server) do(ctx context.Context, step Step, values map[string]string) (Answer, error) {
	fill := func(text string) string {
		for name, value := range values {
			text = strings.ReplaceAll(text, "${"+name+"}", value)
		}
		return text
	}
	body := []byte(step.Body)
	contentType, given := step.Header["Content-Type"]
	if !given && len(body) > 0 {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return Answer{}, fmt.Errorf("body: %w", err)
		}
		contentType = "application/json"
	}
	body = []byte(fill(string(body)))
	req, err := http.NewRequestWithContext(ctx, step.Method, s.url+fill(step.Path), bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
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
		return Answer{}, err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	for name, path := range step.Keep {
		values[name] = lookUp(got, path)
	}
	return newAnswer(response, got), nil
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
