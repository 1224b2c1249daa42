package tui

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// messages are what users are told in their language, with where: what say, note
// and call get as a text, and a dialog as labels.
func messages(t *testing.T) (said map[string]string, literals map[string]bool) {
	t.Helper()
	said, literals = map[string]string{}, map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "words_zh") {
			continue
		}
		file, err := parser.ParseFile(files, entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		text := func(e ast.Expr) (string, bool) {
			l, ok := e.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return "", false
			}
			s, err := strconv.Unquote(l.Value)
			return s, err == nil
		}
		note := func(e ast.Expr) {
			if s, ok := text(e); ok {
				said[s] = files.Position(e.Pos()).String()
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, ok := text(n); ok {
					literals[s] = true
				}
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if (name == "say" || name == "note" || name == "call") && len(n.Args) > 0 {
					note(n.Args[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "yes" || key.Name == "ask" || key.Name == "instead") {
					note(n.Value)
				}
			}
			return true
		})
	}
	return said, literals
}

// TestEveryMessageIsInBothLanguages holds that what users are told is there in
// zh-TW, with the same blanks, and that nothing is there which nobody says.
func TestEveryMessageIsInBothLanguages(t *testing.T) {
	// What is no message, or the same in both languages.
	same := map[string]bool{"OK": true, "replicas": true, "local:remote": true, "%s": true}
	said, literals := messages(t)
	if len(said) < 80 {
		t.Fatalf("only %d messages were found", len(said))
	}
	chinese := newWords("zh_TW").other
	letters := regexp.MustCompile("[a-z]{2}")
	for text, where := range said {
		if _, ok := chinese[text]; !ok && !same[text] && letters.MatchString(text) {
			t.Errorf("%s: no zh-TW for %q", where, text)
		}
	}
	for state := range plainTheme().states {
		literals[string(state)] = true
	}
	blank := regexp.MustCompile(`%(?:\[\d\])?[.\d]*[a-z]`)
	for text, other := range chinese {
		if !literals[text] {
			t.Errorf("nobody says %q", text)
		}
		if a, b := len(blank.FindAllString(text, -1)), len(blank.FindAllString(other, -1)); a != b {
			t.Errorf("%q has %d blanks, %q %d", text, a, other, b)
		}
	}
}

// What servers, the network and libraries say in English is told in the user's
// language where it is what users see most often, with what it is about.
func TestErrorsAreToldInTheUsersLanguage(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	file := clientcmdapi.Config{Contexts: map[string]*clientcmdapi.Context{"here": {}}, CurrentContext: "here"}
	_, missing := clientcmd.NewDefaultClientConfig(file, &clientcmd.ConfigOverrides{CurrentContext: "elsewhere"}).ClientConfig()
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(pods, "", errors.New(`User "ann" cannot list resource "pods" in API group "" at the cluster scope`)), "使用者 ann 沒有權限：不能在整個叢集 list pods"},
		{fmt.Errorf("delete: %w", apierrors.NewForbidden(pods, "web", errors.New(`User "ann" cannot delete resource "pods" in API group "" in the namespace "shop"`))), "delete: 使用者 ann 沒有權限：不能在 Namespace shop 中 delete pods"},
		{apierrors.NewUnauthorized("Unauthorized"), "API 伺服器不認得您：憑證無效或已過期"},
		{&url.Error{Op: "Get", URL: "https://10.0.0.1:6443/version", Err: refused}, "無法連線到 10.0.0.1:6443：連線遭拒"},
		{io.ErrUnexpectedEOF, "連線中斷"},
		{context.DeadlineExceeded, "逾時，沒有回應"},
		{apierrors.NewNotFound(pods, "web"), "找不到 pods web"},
		{apierrors.NewConflict(pods, "web", errors.New("the object has been modified; please apply your changes to the latest version and try again")), "pods web 已被他人修改，請以最新版本再試一次"},
		{missing, "沒有名為 elsewhere 的 context"},
		{errors.New("the server of the consoles stops"), "提供主控台的伺服器即將停止"},
		{errors.New("something else"), "something else"},
	} {
		zh, en := Config{Language: "zh_TW.UTF-8"}, Config{}
		if got := zh.Told(c.err); got != c.want {
			t.Errorf("%v is told as %q", c.err, got)
		}
		if got := en.Told(c.err); got != c.err.Error() {
			t.Errorf("%v is told as %q", c.err, got)
		}
	}
}
