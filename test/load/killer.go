package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// judgeTime bounds the wait until the first daemon has judged every Node.
const judgeTime = 10 * time.Minute

type killer struct {
	*play
	daemon *scene.Daemon
	random *rand.Rand
	open   int // runs, when last asked
}

// startKiller starts the daemon and waits until it has judged the whole cluster.
func (p *play) startKiller(ctx context.Context) (*killer, error) {
	k := &killer{play: p, random: rand.New(rand.NewPCG(p.Seed, 0))}
	var err error
	if k.daemon, err = p.s.StartDaemon(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, judgeTime)
	defer cancel()
	for {
		st, err := p.client.Status(ctx)
		if err == nil && len(st.Value.Clusters) == 1 && len(st.Value.Clusters[0].Checks) == 1 && st.Value.Clusters[0].Checks[0].Healthy == p.Nodes {
			return k, nil
		}
		if !rig.Sleep(ctx, poll) {
			return nil, fmt.Errorf("wait until fenced calls %d Nodes healthy: %w\n%s", p.Nodes, ctx.Err(), p.s.LogTail(20))
		}
	}
}

// rage kills the daemon at random and starts it again, until all are back and it was
// killed often enough; then the last one is left alive.
func (k *killer) rage(ctx context.Context, over func(context.Context, wire.Status) bool) error {
	for {
		life := k.LifeMin + time.Duration(k.random.Int64N(int64(k.LifeMax-k.LifeMin)))
		done, err := k.live(ctx, life, over)
		if err != nil || done && k.result.Kills >= k.MinKills {
			return err
		}
		k.kill()
		k.result.Kills++
		began := time.Now()
		asked := k.asked()
		if k.daemon, err = k.s.Launch(k.Programs.Fenced); err != nil {
			return err
		}
		if k.result.Resumed == 0 && k.open >= k.Hosts*9/10 {
			if err := k.measure(ctx, began, asked); err != nil {
				return err
			}
		}
	}
}

// live lets the daemon live for a while, and says whether all is over.
func (k *killer) live(ctx context.Context, life time.Duration, over func(context.Context, wire.Status) bool) (done bool, err error) {
	end := time.Now().Add(life)
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("wait until all hosts are back: %w", ctx.Err())
		case <-k.daemon.Done():
			return false, errors.New("fenced ended by itself")
		case <-time.After(min(poll, time.Until(end))):
		}
		st, err := k.client.Status(ctx)
		if err != nil {
			continue // it is starting
		}
		if k.open != len(st.Value.Runs) {
			k.open = len(st.Value.Runs)
			k.tell("%d kills, %d runs open", k.result.Kills, k.open)
		}
		if over(ctx, st.Value) {
			return true, nil
		}
	}
	return false, nil
}

// kill is kill -9 of the daemon; it notes how large it was.
func (k *killer) kill() {
	k.result.Memory = max(k.result.Memory, peakMemory(k.daemon.PID()))
	k.daemon.Kill()
}

// stop ends the last daemon as systemd does, which must end it well.
func (k *killer) stop(ctx context.Context) error {
	k.result.Memory = max(k.result.Memory, peakMemory(k.daemon.PID()))
	code, err := k.daemon.Terminate(ctx)
	if err == nil && code != 0 {
		k.violate("fenced ended with status %d", code)
	}
	return err
}

// asked is how many datagrams each target's BMC has had.
func (k *killer) asked() map[*scene.Worker]int {
	n := map[*scene.Worker]int{}
	for _, w := range k.targets {
		n[w] = w.BMC.(*ipmisim.GoBMC).Asked()
	}
	return n
}

// measure waits until the daemon has talked to the BMC of every open run again. // L2
func (k *killer) measure(ctx context.Context, began time.Time, before map[*scene.Worker]int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		resumed := 0
		for w, n := range k.asked() {
			if n > before[w] {
				resumed++
			}
		}
		if resumed >= k.open {
			k.result.Resume, k.result.Resumed = time.Since(began), resumed
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %d runs are resumed, of which %d are: %w", k.open, resumed, ctx.Err())
		case <-k.daemon.Done():
			return errors.New("fenced ended by itself")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// peakMemory is the largest resident size that a process had, in KiB; 0 if it is gone.
func peakMemory(pid int) int64 {
	peak, _ := rig.Memory(pid, "VmHWM")
	return peak >> 10
}
