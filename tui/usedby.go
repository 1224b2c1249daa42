package tui

import "context"

// showUsedBy lists what uses an object: workloads, Ingresses, accounts.
func (a *app) showUsedBy(t target) {
	a.push(newText(a, "used by ‹"+t.String()+"›", func(ctx context.Context) ([]string, error) {
		b, err := a.blast(ctx, []target{t}, false)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, u := range b.Users {
			out = append(out, u.Kind+" "+u.Namespace+"/"+u.Name)
		}
		if len(out) == 0 {
			out = []string{a.words.say("there are none")}
		}
		return out, nil
	}))
}
