package simulate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	utilexec "k8s.io/utils/exec"
)

// shell pretends to be a shell in a container. It knows a few commands and says
// that it knows no more.
type shell struct {
	out, errOut io.Writer
	tty         bool
	env         map[string]string
	files       *files
	terminal    *term.Terminal // nil: not interactive, or no terminal
	killed      chan struct{}
	kill        func()

	mu            sync.Mutex // protects the fields below
	width, height int
}

// shell makes one that runs in a container.
func (r *Runtime) shell(c *container, out, errOut io.Writer, tty bool) *shell {
	s := &shell{out: out, errOut: errOut, tty: tty, files: &c.files, killed: make(chan struct{}), env: map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "PWD": "/",
		"HOSTNAME": cmp.Or(c.sandbox.config.GetHostname(), c.sandbox.config.GetMetadata().GetName()),
	}}
	s.kill = sync.OnceFunc(func() { close(s.killed) })
	if tty {
		s.env["TERM"] = "xterm"
		s.out, s.errOut = crlf{out}, crlf{out}
	}
	for _, e := range c.config.Envs {
		s.env[e.Key] = string(e.Value)
	}
	return s
}

// crlf writes lines as terminals want them.
type crlf struct{ io.Writer }

func (w crlf) Write(p []byte) (int, error) {
	_, err := io.WriteString(w.Writer, strings.ReplaceAll(string(p), "\n", "\r\n"))
	return len(p), err
}

func (s *shell) resize(width, height int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width, s.height = width, height
	if s.terminal != nil {
		_ = s.terminal.SetSize(width, height)
	}
}

// exit ends a shell with a status.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run runs a command, which may be a shell that reads commands.
func (s *shell) run(cmd []string, in io.Reader) error {
	if len(cmd) == 0 {
		return errors.New("no command")
	}
	code, err := s.command(cmd, in)
	var ended exit
	if errors.As(err, &ended) {
		code, err = int(ended), nil
	}
	select {
	case <-s.killed:
		code = 137
	default:
	}
	if err == nil && code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	}
	return err
}

// builtins are the commands that the shell knows, as help lists them.
func builtins() []string {
	return []string{"cat", "date", "echo", "env", "exit", "false", "help", "hostname", "ls", "pwd", "sleep", "stty size", "tar", "test", "true"}
}

func knows(name string) bool {
	return slices.Contains([]string{"sh", "bash", "stty"}, name) || slices.Contains(builtins(), name)
}

// command runs one command. An error of type exit ends the shell around it.
func (s *shell) command(words []string, in io.Reader) (code int, err error) {
	name := words[0][strings.LastIndex(words[0], "/")+1:]
	args := words[1:]
	switch name {
	case "sh", "bash", "ash":
		return s.sh(args, in)
	case "exec":
		if len(args) == 0 {
			return 0, nil
		}
		if code, err = s.command(args, in); err == nil {
			err = exit(code)
		}
		return code, err
	case "exit":
		code = 0
		if len(args) > 0 {
			code, _ = strconv.Atoi(args[0])
		}
		return code, exit(code)
	case "command":
		if len(args) == 2 && args[0] == "-v" && knows(args[1]) {
			return 0, s.print("/bin/" + args[1] + "\n")
		}
		return 127, nil
	case "export", "cd", "clear", "set", "true", ":":
		for _, a := range args {
			s.assign(a)
		}
		return 0, nil
	case "false":
		return 1, nil
	case "cat":
		return s.cat(args, in)
	case "sleep":
		return s.sleep(args)
	case "ls":
		return s.ls(args)
	case "tar":
		return s.tar(args, in)
	case "test":
		return s.test(args)
	}
	return s.report(name, args)
}

// report runs the commands that only print something.
func (s *shell) report(name string, args []string) (int, error) {
	switch name {
	case "echo":
		if len(args) > 0 && args[0] == "-n" {
			return 0, s.print(strings.Join(args[1:], " "))
		}
		return 0, s.print(strings.Join(args, " ") + "\n")
	case "hostname":
		return 0, s.print(s.env["HOSTNAME"] + "\n")
	case "env", "printenv":
		var lines []string
		for k, v := range s.env {
			lines = append(lines, k+"="+v+"\n")
		}
		slices.Sort(lines)
		return 0, s.print(strings.Join(lines, ""))
	case "date":
		return 0, s.print(time.Now().UTC().Format("Mon Jan _2 15:04:05 UTC 2006") + "\n")
	case "pwd":
		return 0, s.print("/\n")
	case "stty":
		if len(args) != 1 || args[0] != "size" {
			return s.complain(1, "stty: only \"stty size\" is simulated")
		}
		if !s.tty {
			return s.complain(1, "stty: standard input is not a terminal")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return 0, s.print(fmt.Sprintf("%d %d\n", s.height, s.width))
	case "help":
		return 0, s.print("This container is simulated. Its shell knows: " + strings.Join(builtins(), ", ") + ".\n")
	}
	return s.complain(127, "%s: not found (this container is simulated; \"help\" lists what there is)", name)
}

func (s *shell) print(text string) error {
	_, err := io.WriteString(s.out, text)
	return err
}

func (s *shell) complain(code int, format string, args ...any) (int, error) {
	_, err := fmt.Fprintf(s.errOut, format+"\n", args...)
	return code, err
}

func (s *shell) sleep(args []string) (int, error) {
	if len(args) != 1 {
		return s.complain(1, "sleep: one time in seconds is needed")
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(args[0], "s"), 64)
	if err != nil {
		return s.complain(1, "sleep: invalid time %q", args[0])
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil
	case <-s.killed:
		return 137, nil
	}
}

// sh runs a script, or reads commands.
func (s *shell) sh(args []string, in io.Reader) (int, error) {
	for i, a := range args {
		if strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") && i+1 < len(args) {
			return within(s.script(args[i+1], in))
		}
	}
	if in == nil {
		return 0, nil
	}
	if s.tty {
		return within(s.interactive(in))
	}
	code := 0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var err error
		if code, err = s.script(lines.Text(), nil); err != nil {
			return within(code, err)
		}
	}
	return code, nil
}

// within turns the exit of a shell into its status.
func within(code int, err error) (int, error) {
	var ended exit
	if errors.As(err, &ended) {
		return int(ended), nil
	}
	return code, err
}

// interactive reads commands from a terminal.
func (s *shell) interactive(in io.Reader) (int, error) {
	raw := s.out
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&interrupts{in: in}, raw.(crlf).Writer}, "/ # ")
	s.mu.Lock()
	s.terminal = t
	if s.width > 0 {
		_ = t.SetSize(s.width, s.height)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.terminal = nil
	}()
	if err := s.print("This container is simulated: nothing runs here. \"help\" lists what this shell knows.\n"); err != nil {
		return 0, err
	}
	code := 0
	for {
		text, err := t.ReadLine()
		if err != nil {
			return code, nil
		}
		if code, err = s.script(text, nil); err != nil {
			return code, err
		}
	}
}

// interrupts makes Ctrl-C drop the line that is being typed, as shells do.
type interrupts struct {
	in   io.Reader
	rest []byte
}

func (r *interrupts) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		buf := make([]byte, 256)
		n, err := r.in.Read(buf)
		if n == 0 {
			return 0, err
		}
		r.rest = []byte(strings.ReplaceAll(string(buf[:n]), "\x03", "\x15\r"))
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// script runs commands that ;, && and || separate. Of a shell's grammar it
// knows no more than entering a container needs: assignments, quotes,
// variables, and "if ...; then ...; fi" whose condition holds.
func (s *shell) script(text string, in io.Reader) (code int, err error) {
	skip := false
	for _, c := range s.parse(text) {
		skip = c.after == "&&" && code != 0 || c.after == "||" && code == 0
		if skip || len(c.words) == 0 {
			continue
		}
		out := s.out
		if c.quiet {
			s.out = io.Discard
		}
		code, err = s.command(c.words, in)
		s.out = out
		if err != nil {
			return code, err
		}
	}
	return code, nil
}

// simpleCommand is one command of a script; after is what separates it from the
// one before, quiet that its output is redirected.
type simpleCommand struct {
	words []string
	after string
	quiet bool
}

// parse takes a script apart.
func (s *shell) parse(text string) []simpleCommand {
	var all []simpleCommand
	now := simpleCommand{after: ";"}
	for _, w := range splitWords(text) {
		switch {
		case !w.quoted && (w.text == ";" || w.text == "&&" || w.text == "||"):
			all = append(all, now)
			now = simpleCommand{after: w.text}
		case !w.quoted && strings.ContainsAny(w.text, "<>"):
			now.quiet = now.quiet || !strings.HasPrefix(w.text, "2") && !strings.HasPrefix(w.text, "<")
		case len(now.words) == 0 && !w.quoted && slices.Contains([]string{"if", "then", "fi", "{", "}"}, w.text):
		case len(now.words) == 0 && s.assign(w.text):
		case w.literal:
			now.words = append(now.words, w.text)
		default:
			now.words = append(now.words, s.expand(w.text))
		}
	}
	return append(all, now)
}

// assign takes in NAME=value.
func (s *shell) assign(word string) bool {
	name, value, ok := strings.Cut(word, "=")
	if !ok || name == "" || strings.ContainsAny(name, " $/-") {
		return false
	}
	s.env[name] = s.expand(value)
	return true
}

// expand puts variables' values in their places.
func (s *shell) expand(text string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' {
			b.WriteByte(text[i])
			continue
		}
		rest := strings.TrimPrefix(text[i+1:], "{")
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && (r < '0' || r > '9') && (r|32 < 'a' || r|32 > 'z') })
		if end < 0 {
			end = len(rest)
		}
		b.WriteString(s.env[rest[:end]])
		i = len(text) - len(rest) + end - 1
		if strings.HasPrefix(text[i+1:], "}") {
			i++
		}
	}
	return b.String()
}

// word is a word of a script: quoted ones are never operators, and literal
// ones, in single quotes, have no variables.
type word struct {
	text            string
	quoted, literal bool
}

// splitWords takes words and separators apart.
func splitWords(text string) []word {
	var all []word
	var b strings.Builder
	var now word
	started := false
	end := func() {
		if started {
			now.text = b.String()
			all = append(all, now)
		}
		b.Reset()
		now, started = word{}, false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t':
			end()
		case ';', '\n', '&', '|':
			if c == '&' && strings.HasSuffix(b.String(), ">") { // 2>&1
				b.WriteByte(c)
				continue
			}
			end()
			separator := ";"
			if i+1 < len(text) && text[i+1] == c && (c == '&' || c == '|') {
				separator = strings.Repeat(string(c), 2)
				i++
			}
			all = append(all, word{text: separator})
		case '\'', '"':
			started, now.quoted, now.literal = true, true, now.literal || c == '\''
			closing := strings.IndexByte(text[i+1:], c)
			if closing < 0 {
				closing = len(text) - i - 1
			}
			b.WriteString(text[i+1 : i+1+closing])
			i += closing + 1
		case '\\':
			if i+1 < len(text) {
				i++
				started = true
				b.WriteByte(text[i])
			}
		default:
			started = true
			b.WriteByte(c)
		}
	}
	end()
	return all
}
