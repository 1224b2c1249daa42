package web

import (
	"crypto/rand"
	"net/http"
	"time"
)

// codeLife is how long a link to sign in with is good.
const codeLife = 5 * time.Minute

// code is what such a link carries, sealed: for whom, and until when. It is good
// once. It is in the address behind "#", which browsers send nowhere, and the page
// takes it out of there at once.
type code struct {
	ID    string    `json:"i"`
	User  User      `json:"u"`
	Until time.Time `json:"e"`
	Ends  time.Time `json:"x"`
}

// Link is the address, below a server's, of a page that signs user in; the session
// ends when ends is past, if it is set.
func (d *Dashboard) Link(user User, ends time.Time) (string, error) {
	sealed, err := d.seal.close(forCode, code{ID: rand.Text(), User: user, Until: d.now().Add(codeLife), Ends: ends})
	return Prefix + "#code=" + sealed, err
}

func (d *Dashboard) signInByCode(w http.ResponseWriter, r *http.Request, text string) {
	var c code
	if d.seal.open(forCode, text, &c) != nil || d.now().After(c.Until) || !d.live.once(c.ID, c.Until) {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "this link has been used already, or is too old: run `orrery dashboard` again")
		return
	}
	d.enter(w, r, c.User, session{User: &c.User, Ends: c.Ends})
}
