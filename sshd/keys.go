package sshd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/crypto/ssh"
)

// Identity is who the owner of a key is in the cluster.
type Identity struct {
	User   string
	Groups []string
}

// Equal reports whether both are the same user.
func (i Identity) Equal(o Identity) bool { return i.User == o.User && slices.Equal(i.Groups, o.Groups) }

// Keys is a file in the form of authorized_keys, whose options name the owner of
// each key. It is read again when it has changed.
type Keys struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex // protects the fields below
	was   os.FileInfo
	users map[string]Identity // by the key as it travels
}

// OpenKeys reads a file of keys; each of its lines must be right.
func OpenKeys(path string, log *slog.Logger) (*Keys, error) {
	k := &Keys{path: path, log: log}
	if problems := k.read(); len(problems) > 0 {
		return nil, fmt.Errorf("keys of the console: %w", errors.Join(problems...))
	}
	return k, nil
}

// Find says whose a key is. What is wrong in a file that has changed is told to
// the log, and its other lines hold: a key that was taken out must not stay for
// a slip elsewhere.
func (k *Keys) Find(key ssh.PublicKey) (Identity, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, problem := range k.read() {
		k.log.Warn("key of the console refused", "err", problem)
	}
	who, ok := k.users[string(key.Marshal())]
	return who, ok
}

// read reads the file if it has changed, and says what is wrong in it.
func (k *Keys) read() []error {
	info, err := os.Stat(k.path)
	if err == nil && k.was != nil && os.SameFile(info, k.was) && info.ModTime().Equal(k.was.ModTime()) && info.Size() == k.was.Size() {
		return nil
	}
	if err != nil && k.users != nil && k.was == nil {
		return nil // said already
	}
	k.was, k.users = nil, map[string]Identity{}
	if err != nil {
		return []error{err}
	}
	if info.Mode()&0o002 != 0 {
		return []error{&fs.PathError{Op: "read", Path: k.path, Err: errors.New("anybody may write to it, and so be anybody: chmod o-w")}}
	}
	data, err := os.ReadFile(k.path)
	if err != nil {
		return []error{err}
	}
	k.was = info
	var problems []error
	k.users, problems = parseKeys(data)
	for i, problem := range problems {
		problems[i] = fmt.Errorf("%s: %w", k.path, problem)
	}
	return problems
}

// parseKeys reads the lines of a file of keys.
func parseKeys(data []byte) (users map[string]Identity, problems []error) {
	users = map[string]Identity{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d is no public key with options before it, such as %s", number, example))
			continue
		}
		who, err := identity(options)
		if _, is := key.(*ssh.Certificate); err == nil && is {
			err = errors.New("certificates are not known here: name the key itself")
		}
		if _, twice := users[string(key.Marshal())]; err == nil && twice {
			err = errors.New("the key is on another line already")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		users[string(key.Marshal())] = who
	}
	return users, problems
}

const example = `user="alice",group="dev" ssh-ed25519 AAAA...`

// identity is what the options of a line say.
func identity(options []string) (who Identity, err error) {
	for _, option := range options {
		name, quoted, _ := strings.Cut(option, "=")
		value, err := strconv.Unquote(quoted)
		switch {
		case name != "user" && name != "group":
			return who, fmt.Errorf("the option %s is not known here; there are user and group: %s", name, example)
		case err != nil || value == "" || strings.ContainsFunc(value, unicode.IsControl):
			return who, fmt.Errorf("%s is not of the form %s=\"name\": %s", option, name, example)
		case strings.HasPrefix(value, "system:"):
			return who, fmt.Errorf("%s: names that begin with system: are Kubernetes' own, and no key may have them; bind a role to another name", value)
		case name == "group":
			who.Groups = append(who.Groups, value)
		case who.User != "":
			return who, fmt.Errorf("there are two users, %s and %s", who.User, value)
		default:
			who.User = value
		}
	}
	if who.User == "" {
		return who, fmt.Errorf("it does not say whose key it is: %s", example)
	}
	return who, nil
}
