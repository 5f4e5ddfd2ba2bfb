// The Node client ali-ons against the cluster at NAMESRV_ADDR: one line for each scenario and the sums at the end.
// usage: node interop.js [--quick] [SCENARIO...]; MQADMIN is the path of mqadmin, which creates the topics; SLOWNESS stretches all time limits.
'use strict';

const { execFile } = require('child_process');
const { promisify } = require('util');
const { Consumer, Message, Producer } = require('ali-ons');

const args = process.argv.slice(2);
const quick = args.includes('--quick');
const only = args.filter(argument => argument !== '--quick');
const namesrv = (process.env.NAMESRV_ADDR || '').split(/[;,]/).filter(Boolean);
const slowness = Number(process.env.SLOWNESS || 1);
const run = Date.now().toString(36);
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const numbered = (prefix, count) => Array.from({ length: count }, (_, i) => `${prefix}-${String(i).padStart(4, '0')}`);

function check(condition, text) {
  if (!condition) throw new Error(text);
}

// One scenario's topic, group and clients.
class Fixture {
  constructor(name) {
    this.topic = `NodeInterop_${run}_${name}`;
    this.group = `NodeGroup_${run}_${name}`;
    this.clients = [];
  }

  options(extra) {
    return {
      nameSrv: namesrv,
      httpclient: { request: async () => { throw new Error('the name servers are given, nothing is to be fetched'); } },
      instanceName: `${this.group}-${this.clients.length}`, // clients of one name share their connections
      logger: quiet,
      ...extra,
    };
  }

  async createTopic(queues) {
    await promisify(execFile)(process.env.MQADMIN, [ 'updateTopic', '-n', namesrv.join(';'), '-c', 'DefaultCluster', '-t', this.topic,
      '-r', String(queues), '-w', String(queues) ]);
  }

  async producer() {
    const producer = new Producer(this.options({ producerGroup: `${this.group}-producer`, sendMsgTimeout: 3000 * slowness }));
    producer.on('error', () => {});
    this.clients.push(producer);
    await producer.ready();
    return producer;
  }

  // Returns the list that the consumer fills.
  async consume(expression = '*', { handle = () => undefined, ...extra } = {}) {
    const consumer = new Consumer(this.options({ consumerGroup: this.group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...extra }));
    consumer.on('error', () => {});
    this.clients.push(consumer);
    const got = [];
    got.consumer = consumer;
    consumer.subscribe(this.topic, expression, async message => {
      got.push(Object.assign(message, { text: message.body.toString(), at: Date.now() }));
      return handle(message);
    });
    await consumer.ready();
    return got;
  }

  async send(producer, bodies, prepare = () => undefined) {
    const results = new Map();
    for (const body of bodies) {
      const message = new Message(this.topic, 'tag', body);
      prepare(message, body);
      const result = await producer.send(message);
      check(result.sendStatus === 'SEND_OK', `${body}: ${result.sendStatus}`);
      results.set(body, result);
    }
    return results;
  }

  async close() {
    for (const client of this.clients.reverse()) {
      await Promise.race([ client.close().catch(() => undefined), sleep(2000) ]);
    }
  }
}

// Waits for so many messages, then a moment for surplus ones, and compares them in any order.
async function expect(got, bodies, seconds = 30) {
  for (const end = Date.now() + seconds * slowness * 1000; got.length < bodies.length && Date.now() < end;) await sleep(20);
  await sleep(500);
  const have = got.map(message => message.text).sort();
  check(have.join() === [ ...bodies ].sort().join(), `got ${have.length} messages (${have.slice(0, 3)}...), wanted ${bodies.length}`);
}

const scenarios = {
  async 'send-and-consume'(f) {
    await f.createTopic(4);
    const colour = 'grün "{}\\';
    const results = await f.send(await f.producer(), numbered('m', 40), (message, body) => {
      message.keys = [ body ];
      message.properties.colour = colour;
    });
    const next = {};
    for (const [ body, { messageQueue, queueOffset } ] of results) {
      check(queueOffset === (next[messageQueue.queueId] || 0), `${body}: offset ${queueOffset} in queue ${messageQueue.queueId}`);
      next[messageQueue.queueId] = queueOffset + 1;
    }
    const got = await f.consume();
    await expect(got, [ ...results.keys() ]);
    for (const m of got) {
      const sent = results.get(m.text);
      check(m.queueId === Number(sent.messageQueue.queueId) && m.queueOffset === sent.queueOffset && m.msgId === sent.msgId,
        `${m.text} stands at ${m.queueId}/${m.queueOffset} with id ${m.msgId}, sent to ${sent.messageQueue.queueId}/${sent.queueOffset} with ${sent.msgId}`);
      check(m.tags === 'tag' && m.keys === m.text && m.properties.colour === colour, `${m.text}: ${JSON.stringify(m.properties)}`);
    }
  },

  async 'push-tags'(f) {
    await f.createTopic(2);
    const got = await f.consume('A || C');
    const bodies = numbered('m', 30);
    await f.send(await f.producer(), bodies, (message, body) => { message.tags = 'ABC'[bodies.indexOf(body) % 3]; });
    await expect(got, bodies.filter((_, i) => i % 3 !== 1));
  },

  async 'push-broadcast'(f) {
    await f.createTopic(2);
    const inboxes = [ await f.consume('*', { isBroadcast: true }), await f.consume('*', { isBroadcast: true }) ];
    const bodies = numbered('m', 20);
    await f.send(await f.producer(), bodies);
    for (const got of inboxes) await expect(got, bodies);
  },

  async 'offsets-resume'(f) {
    await f.createTopic(2);
    const producer = await f.producer();
    await f.send(producer, numbered('first', 20));
    const got = await f.consume();
    await expect(got, numbered('first', 20));
    await got.consumer.close(); // stores the offsets
    await f.send(producer, numbered('second', 10));
    await expect(await f.consume(), numbered('second', 10));
  },

  async compressed(f) {
    await f.createTopic(1);
    const body = '0123456789abcdef'.repeat(4096);
    await f.send(await f.producer(), [ body ]);
    const got = await f.consume();
    await expect(got, [ body ]);
    check(got[0].storeSize < body.length / 4, `stored size ${got[0].storeSize}`);
  },

  async delay(f) {
    await f.createTopic(1);
    const producer = await f.producer();
    const got = await f.consume();
    await f.send(producer, [ 'first' ]); // from here on the consumer waits for messages
    await expect(got, [ 'first' ]);
    const sent = Date.now();
    await f.send(producer, [ 'delayed' ], message => { message.delayTimeLevel = 1; });
    await expect(got, [ 'first', 'delayed' ]);
    check(got[1].at - sent >= 950, `a message of level 1 came after ${got[1].at - sent} ms`);
  },

  async retry(f) {
    await f.createTopic(1);
    const got = await f.consume('*', { handle: message => (message.reconsumeTimes === 0 ? Consumer.ACTION_RETRY : undefined) });
    const results = await f.send(await f.producer(), [ 'stubborn' ]);
    await expect(got, [ 'stubborn', 'stubborn' ], 55); // level 3 is 10 s
    check(got[1].reconsumeTimes === 1 && got[1].at - got[0].at >= 9500, `retry ${got[1].reconsumeTimes} after ${got[1].at - got[0].at} ms`);
    const { msgId } = results.get('stubborn'); // the id of the place, so the retry has one of its own
    check(got[0].msgId === msgId && got[1].originMessageId === msgId, `sent ${msgId}, got ${got[0].msgId}, then one of ${got[1].originMessageId}`);
  },
};
const slow = [ 'delay', 'retry' ];

async function main() {
  check(namesrv.length > 0 && process.env.MQADMIN, 'NAMESRV_ADDR and MQADMIN must be set');
  let passed = 0;
  let failed = 0;
  await Promise.all(Object.entries(scenarios).filter(([ name ]) => (only.length > 0 ? only.includes(name) : !(quick && slow.includes(name))))
    .map(async ([ name, body ]) => {
      const fixture = new Fixture(name);
      const started = Date.now();
      const late = sleep(90000 * slowness).then(() => { throw new Error('no end in time'); });
      late.catch(() => undefined);
      try {
        await Promise.race([ body(fixture), late ]);
        passed++;
        console.log(`ok ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
      } catch (err) {
        failed++;
        console.log(`not ok ${name}: ${err.message}`);
      }
      await fixture.close();
    }));
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed > 0 || passed === 0 ? 1 : 0);
}

process.on('unhandledRejection', () => undefined); // the library's own, of requests that nobody waits for
main().catch(err => {
  console.error(err.message);
  process.exit(2);
});
