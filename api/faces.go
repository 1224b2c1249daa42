package api

// OwnPrefix begins all paths that only orrery's API server serves, and faces ask.
const OwnPrefix = "/orrery/"

// NamespacesPath is where a face asks in which namespaces its user may see
// anything, if the user may not list them all. Kubernetes has no such list.
const NamespacesPath = OwnPrefix + "v1/namespaces"

// Namespaces is the answer.
type Namespaces struct {
	Names []string `json:"names"`
}

// SignInPath is where whoever has a kubeconfig asks, by POST, for a link that signs
// a browser in as them.
const SignInPath = OwnPrefix + "v1/sign-in"

// SignIn is the answer: the link's path and fragment. It is good once, and for some
// minutes.
type SignIn struct {
	Link string `json:"link"`
}
