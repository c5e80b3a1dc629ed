package look

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// memberPod is a Pod of a member of etcd on a Node.
func memberPod(node string, ready corev1.ConditionStatus) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + node, Namespace: metav1.NamespaceSystem, Labels: map[string]string{"component": "etcd"}}}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// pagedMembers is an API server that lists the members of etcd in kube-system in these pages, and none elsewhere. Each
// Node is Ready. gone: the token of this page has expired; loops: the last page leads to itself again.
type pagedMembers struct {
	t     *testing.T
	pages [][]corev1.Pod
	gone  int
	loops bool

	mu    sync.Mutex
	asked []string // the tokens
}

func (s *pagedMembers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		n := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: path.Base(r.URL.Path), UID: "u", ResourceVersion: "1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		assert.NoError(s.t, json.NewEncoder(w).Encode(n))
	case strings.HasSuffix(r.URL.Path, "/pods"):
		q := r.URL.Query()
		assert.Equal(s.t, fmt.Sprint(membersOnPage), q.Get("limit"))
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		if strings.Contains(r.URL.Path, metav1.NamespaceSystem) {
			assert.Equal(s.t, "component=etcd", q.Get("labelSelector"))
			s.asked = append(s.asked, q.Get("continue"))
			var at int
			if token := q.Get("continue"); token != "" {
				_, err := fmt.Sscanf(token, "page-%d", &at)
				assert.NoError(s.t, err)
			}
			if s.gone > 0 && at == s.gone {
				k8stest.Status(w, http.StatusGone, "Expired", "")
				return
			}
			list.Items = s.pages[at]
			if next := at + 1; next < len(s.pages) {
				list.Continue = fmt.Sprintf("page-%d", next)
			} else if s.loops {
				list.Continue = fmt.Sprintf("page-%d", at)
			}
		}
		assert.NoError(s.t, json.NewEncoder(w).Encode(list))
	default:
		k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	}
}

// look reads the members for a control-plane host.
func (s *pagedMembers) look() (*looker, error) {
	c := served(s.t, s.ServeHTTP)
	l := &looker{r: c, work: c.Servers.Work.API(), manage: c.Servers.Manage.API(), run: remediate.Run{ControlPlane: true, Target: remediate.Target{Node: "cp-1"}}}
	err := l.members(s.t.Context())
	return l, err
}

// The Pods that a kubelet makes up on its Node fill pages, and hide no member: each Node counts once, with all its Pods. // I12
func TestMembersAreReadInPages(t *testing.T) {
	full := func(node string) (list []corev1.Pod) {
		for range membersOnPage {
			list = append(list, memberPod(node, corev1.ConditionTrue))
		}
		return list
	}
	yes, no := corev1.ConditionTrue, corev1.ConditionFalse
	s := &pagedMembers{t: t, pages: [][]corev1.Pod{full("forger"), append(full("forger"), memberPod("cp-1", yes)), {memberPod("cp-2", yes), memberPod("forger", no)}, {memberPod("cp-3", yes)}}}
	l, err := s.look()
	require.NoError(t, err)
	assert.True(t, l.look.MembersKnown)
	assert.Equal(t, []policy.Member{{Node: "forger"}, {Node: "cp-1", Healthy: true}, {Node: "cp-2", Healthy: true}, {Node: "cp-3", Healthy: true}}, l.look.Members)
	assert.Equal(t, []string{"", "page-1", "page-2", "page-3"}, s.asked)
}

// A list that breaks off shows no members at all: those of its first pages alone could look like a quorum, or like none.
// The next look begins anew. // I12
func TestListOfMembersThatBreaksOffIsNone(t *testing.T) {
	page := []corev1.Pod{memberPod("cp-1", corev1.ConditionTrue)}
	s := &pagedMembers{t: t, pages: [][]corev1.Pod{page, page, page}, gone: 2}
	l, err := s.look()
	require.ErrorContains(t, err, "list the etcd Pods of kube-system")
	assert.False(t, l.look.MembersKnown)
	assert.Empty(t, l.look.Members)
	assert.Equal(t, []string{"", "page-1", "page-2"}, s.asked)

	s.gone, s.asked = 0, nil
	l, err = s.look()
	require.NoError(t, err)
	assert.True(t, l.look.MembersKnown)
	assert.Equal(t, []string{"", "page-1", "page-2"}, s.asked)

	s.loops, s.asked = true, nil
	l, err = s.look()
	require.ErrorContains(t, err, "there are more than 10000")
	assert.False(t, l.look.MembersKnown)
	assert.Len(t, s.asked, memberPages)
}
