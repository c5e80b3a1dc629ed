package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
)

// AdminGroup may do everything.
const AdminGroup = "system:masters"

// anonymous is who shows no credentials. It may do nothing.
const anonymous = "system:anonymous"

// Right allows a user what a rule of RBAC says, in one namespace, or everywhere if it is empty.
type Right struct {
	User, Namespace string
	rbacv1.PolicyRule
}

type user struct {
	name   string
	groups []string
}

type access struct {
	ca     []byte // in PEM
	mu     sync.RWMutex
	rights []Right // nil: everybody may do everything
	tokens map[string]user
}

// certify makes the certificate of the server, which is its own CA.
func (a *access) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the key of the server: %w", err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "apiserver"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the certificate of the server: %w", err)
	}
	a.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// SetRights replaces what users may do. Nil, as at the start, allows everything.
func (s *Server) SetRights(rights []Right) {
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	s.access.rights = rights
}

// RESTConfig is a client configuration for a user of any name in any groups, with a bearer token of its own and without a rate limit.
func (s *Server) RESTConfig(name string, groups ...string) *rest.Config {
	token := utilrand.String(40)
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	s.access.tokens[token] = user{name, groups}
	return &rest.Config{Host: s.url, QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.access.ca}}
}

// authenticate returns who sends a request; known is false for a token that is not of this server.
func (s *Server) authenticate(r *http.Request) (u user, known bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return user{name: anonymous}, true
	}
	s.access.mu.RLock()
	defer s.access.mu.RUnlock()
	u, known = s.access.tokens[token]
	return u, known
}

// allows says whether a user may do something.
func (s *Server) allows(u user, a authorizationv1.ResourceAttributes) bool {
	s.access.mu.RLock()
	defer s.access.mu.RUnlock()
	if slices.Contains(u.groups, AdminGroup) || s.access.rights == nil && u.name != anonymous {
		return true
	}
	if a.Subresource != "" {
		a.Resource += "/" + a.Subresource
	}
	has := func(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }
	return slices.ContainsFunc(s.access.rights, func(r Right) bool {
		return r.User == u.name && (r.Namespace == "" || r.Namespace == a.Namespace) && has(r.Verbs, a.Verb) && has(r.APIGroups, a.Group) &&
			has(r.Resources, a.Resource) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
	})
}

// authorize returns the error of a request that its user has no right to.
func (s *Server) authorize(u user, q Request) error {
	a := authorizationv1.ResourceAttributes{Verb: q.Verb, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name}
	if q.Resource == "selfsubjectaccessreviews" && u.name != anonymous || s.allows(u, a) { // every user may ask for its rights
		return nil
	}
	resource, where := q.Resource, "at the cluster scope"
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	if q.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", q.Namespace)
	}
	//lint:ignore ST1005 Kubernetes' words
	why := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", u.name, q.Verb, resource, q.Group, where)
	return apierrors.NewForbidden(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, why)
}

// review answers a question about rights.
func (c *call) review() error {
	o, err := c.received()
	if err != nil {
		return err
	}
	r := o.(*authorizationv1.SelfSubjectAccessReview)
	r.Status.Allowed = r.Spec.ResourceAttributes == nil || c.s.allows(c.user, *r.Spec.ResourceAttributes)
	return c.answer(http.StatusCreated, r)
}
