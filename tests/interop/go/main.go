// The Go client v2 against the cluster at NAMESRV_ADDR: one line for each scenario and the sums at the end.
// usage: interop [-quick] [SCENARIO...]; MQADMIN is the path of mqadmin, which creates the topics; SLOWNESS stretches all time limits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv  = strings.FieldsFunc(os.Getenv("NAMESRV_ADDR"), func(r rune) bool { return r == ';' || r == ',' })
	slowness = 1
	run      = strconv.FormatInt(time.Now().UnixMilli(), 36)
	all      = consumer.MessageSelector{}
)

type scenario struct {
	name  string
	quick bool
	body  func(f *fixture) error
}

var scenarios = []scenario{
	{"retry", false, retry},
	{"offsets-resume", true, resume},
	{"send-sync", true, sendSync},
	{"send-async", true, sendAsync},
	{"send-oneway", true, sendOneWay},
	{"send-batch", true, sendBatch},
	{"push-tags", true, tags},
	{"push-orderly", true, orderly},
	{"push-broadcast", true, broadcast},
}

func main() {
	quick := flag.Bool("quick", false, "leave out what waits")
	flag.Parse()
	if factor, err := strconv.Atoi(os.Getenv("SLOWNESS")); err == nil && factor > 0 {
		slowness = factor
	}
	rlog.SetLogLevel("fatal")
	if len(namesrv) == 0 || os.Getenv("MQADMIN") == "" {
		fmt.Fprintln(os.Stderr, "NAMESRV_ADDR and MQADMIN must be set")
		os.Exit(2)
	}
	var passed, failed int
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, s := range scenarios {
		if *quick && !s.quick || flag.NArg() > 0 && !slices.Contains(flag.Args(), s.name) {
			continue
		}
		group.Add(1)
		go func(s scenario) {
			defer group.Done()
			slots <- struct{}{}
			started := time.Now()
			err := attempt(s)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				passed++
				fmt.Printf("ok %s (%.1f s)\n", s.name, time.Since(started).Seconds())
			} else {
				failed++
				fmt.Printf("not ok %s: %v\n", s.name, err)
			}
		}(s)
	}
	group.Wait()
	fmt.Printf("%d passed, %d failed, 0 skipped\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// attempt gives a scenario its deadline; what is still running then goes with the process.
func attempt(s scenario) error {
	limit := time.Duration(slowness) * 60 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	f := &fixture{ctx: ctx, topic: "GoInterop_" + run + "_" + s.name, group: "GoGroup_" + run + "_" + s.name}
	done := make(chan error, 1)
	go func() {
		defer f.close()
		done <- s.body(f)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("no end within %v", limit)
	}
}

// fixture is one scenario's topic, group and clients.
type fixture struct {
	ctx     context.Context
	topic   string
	group   string
	clients int
	closers []func() error
}

func (f *fixture) close() {
	for i := len(f.closers) - 1; i >= 0; i-- {
		_ = f.closers[i]()
	}
}

// instance names a client of its own: clients of one name share their connections and their membership.
func (f *fixture) instance() string {
	f.clients++
	return f.group + "-" + strconv.Itoa(f.clients)
}

func (f *fixture) createTopic(queues int) error {
	n := strconv.Itoa(queues)
	output, err := exec.Command(os.Getenv("MQADMIN"), "updateTopic", "-n", strings.Join(namesrv, ";"), "-c", "DefaultCluster", "-t", f.topic,
		"-r", n, "-w", n).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mqadmin updateTopic: %v: %s", err, output)
	}
	return nil
}

func (f *fixture) producer(options ...producer.Option) (rocketmq.Producer, error) {
	options = append([]producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		producer.WithGroupName(f.group + "-producer"),
		producer.WithInstanceName(f.instance()),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(time.Duration(slowness) * 3 * time.Second),
	}, options...)
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	f.closers = append(f.closers, p.Shutdown)
	return p, nil
}

type handler func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (f *fixture) push(selector consumer.MessageSelector, handle handler, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	options = append([]consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		consumer.WithGroupName(f.group),
		consumer.WithInstance(f.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(f.topic, selector, handle); err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	f.closers = append(f.closers, c.Shutdown)
	return c, nil
}

// inbox is what a consumer got, in the order of the calls.
type inbox struct {
	mu       sync.Mutex
	messages []*primitive.MessageExt
	times    []time.Time
}

func (in *inbox) consume(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, m := range messages {
		in.messages = append(in.messages, m)
		in.times = append(in.times, time.Now())
	}
	return consumer.ConsumeSuccess, nil
}

func (in *inbox) bodies() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var bodies []string
	for _, m := range in.messages {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

// await waits for as many messages as are wanted, then a moment for surplus ones, and compares them in any order.
func (in *inbox) await(ctx context.Context, want []string) error {
	for len(in.bodies()) < len(want) {
		if ctx.Err() != nil {
			return fmt.Errorf("got %d of %d messages", len(in.bodies()), len(want))
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	have, wanted := in.bodies(), slices.Clone(want)
	sort.Strings(have)
	sort.Strings(wanted)
	if !slices.Equal(have, wanted) {
		return fmt.Errorf("got %d messages, wanted %d, or others than were sent", len(have), len(wanted))
	}
	return nil
}

func numbered(prefix string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return bodies
}

func (f *fixture) message(body string) *primitive.Message {
	return primitive.NewMessage(f.topic, []byte(body)).WithTag("tag").WithKeys([]string{body})
}

func (f *fixture) sendAll(p rocketmq.Producer, bodies []string) error {
	for _, body := range bodies {
		result, err := p.SendSync(f.ctx, f.message(body))
		if err != nil {
			return err
		}
		if result.Status != primitive.SendOK {
			return fmt.Errorf("%s: status %d", body, result.Status)
		}
	}
	return nil
}

// produced creates the topic, starts a producer and lets it send.
func (f *fixture) produced(queues int, bodies []string) (rocketmq.Producer, error) {
	if err := f.createTopic(queues); err != nil {
		return nil, err
	}
	p, err := f.producer()
	if err != nil {
		return nil, err
	}
	return p, f.sendAll(p, bodies)
}

func (f *fixture) expect(bodies []string) error {
	in := new(inbox)
	if _, err := f.push(all, in.consume); err != nil {
		return err
	}
	return in.await(f.ctx, bodies)
}

func sendSync(f *fixture) error {
	if err := f.createTopic(4); err != nil {
		return err
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	type place struct {
		queue  int
		offset int64
	}
	places := map[string]place{}
	next := map[int]int64{}
	ids := map[string]string{}
	for _, body := range numbered("m", 100) {
		m := f.message(body)
		m.WithProperty("colour", "grün \"{}\\")
		result, err := p.SendSync(f.ctx, m)
		if err != nil {
			return err
		}
		queue := result.MessageQueue.QueueId
		if result.Status != primitive.SendOK || result.QueueOffset != next[queue] {
			return fmt.Errorf("%s: status %d, offset %d in queue %d, wanted %d", body, result.Status, result.QueueOffset, queue, next[queue])
		}
		next[queue]++
		places[body] = place{queue, result.QueueOffset}
		ids[body] = result.MsgID
	}
	in := new(inbox)
	if _, err = f.push(all, in.consume); err != nil {
		return err
	}
	if err = in.await(f.ctx, numbered("m", 100)); err != nil {
		return err
	}
	for _, m := range in.messages {
		body := string(m.Body)
		if (place{m.Queue.QueueId, m.QueueOffset}) != places[body] || m.MsgId != ids[body] {
			return fmt.Errorf("%s stands at %d/%d with id %s, sent to %v with %s", body, m.Queue.QueueId, m.QueueOffset, m.MsgId, places[body], ids[body])
		}
		if m.GetTags() != "tag" || m.GetKeys() != body || m.GetProperty("colour") != "grün \"{}\\" {
			return fmt.Errorf("%s has tags %q, keys %q, colour %q", body, m.GetTags(), m.GetKeys(), m.GetProperty("colour"))
		}
	}
	return nil
}

func sendAsync(f *fixture) error {
	if err := f.createTopic(4); err != nil {
		return err
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	bodies := numbered("m", 100)
	results := make(chan error, len(bodies))
	for _, body := range bodies {
		err = p.SendAsync(f.ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil && result.Status != primitive.SendOK {
				err = fmt.Errorf("status %d", result.Status)
			}
			results <- err
		}, f.message(body))
		if err != nil {
			return err
		}
	}
	for range bodies {
		select {
		case err = <-results:
			if err != nil {
				return err
			}
		case <-f.ctx.Done():
			return errors.New("not all callbacks came")
		}
	}
	return f.expect(bodies)
}

func sendOneWay(f *fixture) error {
	if err := f.createTopic(2); err != nil {
		return err
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	bodies := numbered("m", 50)
	for _, body := range bodies {
		if err = p.SendOneWay(f.ctx, f.message(body)); err != nil {
			return err
		}
	}
	return f.expect(bodies)
}

func sendBatch(f *fixture) error {
	p, err := f.produced(1, []string{"before"})
	if err != nil {
		return err
	}
	bodies := numbered("b", 10)
	var batch []*primitive.Message
	for _, body := range bodies {
		batch = append(batch, f.message(body))
	}
	result, err := p.SendSync(f.ctx, batch...)
	if err != nil {
		return err
	}
	if result.Status != primitive.SendOK || result.QueueOffset != 1 {
		return fmt.Errorf("status %d, queue offset %d", result.Status, result.QueueOffset)
	}
	return f.expect(append([]string{"before"}, bodies...))
}

func tags(f *fixture) error {
	if err := f.createTopic(2); err != nil {
		return err
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	in := new(inbox)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "A || C"}
	if _, err = f.push(selector, in.consume); err != nil {
		return err
	}
	var want []string
	for i := 0; i < 60; i++ {
		tag := string("ABC"[i%3])
		body := fmt.Sprintf("%s-%02d", tag, i)
		if _, err = p.SendSync(f.ctx, primitive.NewMessage(f.topic, []byte(body)).WithTag(tag)); err != nil {
			return err
		}
		if tag != "B" {
			want = append(want, body)
		}
	}
	return in.await(f.ctx, want)
}

// orderly: the order of each key holds, also behind a message whose queue was suspended once.
func orderly(f *fixture) error {
	if err := f.createTopic(4); err != nil {
		return err
	}
	p, err := f.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	in := new(inbox)
	suspended := false
	_, err = f.push(all, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.mu.Lock()
		refuse := !suspended && string(messages[0].Body) == "key3-0005"
		suspended = suspended || refuse
		in.mu.Unlock()
		if refuse {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return in.consume(ctx, messages...)
	}, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	var want []string
	for i := 0; i < 20; i++ {
		for key := 0; key < 6; key++ {
			body := fmt.Sprintf("key%d-%04d", key, i)
			if _, err = p.SendSync(f.ctx, f.message(body).WithShardingKey(fmt.Sprintf("key%d", key))); err != nil {
				return err
			}
			want = append(want, body)
		}
	}
	if err = in.await(f.ctx, want); err != nil {
		return err
	}
	if !suspended {
		return errors.New("no queue was suspended")
	}
	last := map[string]string{}
	for _, body := range in.bodies() {
		if body <= last[body[:4]] {
			return fmt.Errorf("%s came after %s", body, last[body[:4]])
		}
		last[body[:4]] = body
	}
	return nil
}

func broadcast(f *fixture) error {
	if err := f.createTopic(2); err != nil {
		return err
	}
	inboxes := []*inbox{new(inbox), new(inbox)}
	for _, in := range inboxes {
		if _, err := f.push(all, in.consume, consumer.WithConsumerModel(consumer.BroadCasting)); err != nil {
			return err
		}
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	bodies := numbered("m", 40)
	if err = f.sendAll(p, bodies); err != nil {
		return err
	}
	for _, in := range inboxes {
		if err = in.await(f.ctx, bodies); err != nil {
			return err
		}
	}
	return nil
}

func resume(f *fixture) error {
	first, second := numbered("first", 20), numbered("second", 10)
	p, err := f.produced(2, first)
	if err != nil {
		return err
	}
	in := new(inbox)
	c, err := f.push(all, in.consume)
	if err != nil {
		return err
	}
	if err = in.await(f.ctx, first); err != nil {
		return err
	}
	if err = c.Shutdown(); err != nil { // stores the offsets
		return err
	}
	if err = f.sendAll(p, second); err != nil {
		return err
	}
	return f.expect(second)
}

// retry: fails once, then succeeds; the delay level of the first retry is the consumer's.
func retry(f *fixture) error {
	if err := f.createTopic(1); err != nil {
		return err
	}
	in := new(inbox)
	_, err := f.push(all, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if _, err := in.consume(ctx, messages...); err != nil {
			return consumer.ConsumeRetryLater, err
		}
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = 1
		}
		if messages[0].ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	p, err := f.producer()
	if err != nil {
		return err
	}
	if err = f.sendAll(p, []string{"stubborn"}); err != nil {
		return err
	}
	if err = in.await(f.ctx, []string{"stubborn", "stubborn"}); err != nil {
		return err
	}
	if in.messages[1].ReconsumeTimes != 1 || in.messages[1].MsgId != in.messages[0].MsgId {
		return fmt.Errorf("reconsume times %d, id %s after %s", in.messages[1].ReconsumeTimes, in.messages[1].MsgId, in.messages[0].MsgId)
	}
	if apart := in.times[1].Sub(in.times[0]); apart < 950*time.Millisecond {
		return fmt.Errorf("the retry came after %v", apart)
	}
	return nil
}
