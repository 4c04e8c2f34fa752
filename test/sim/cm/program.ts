/** A program on one side: it connects, accepts, refuses, waits, ends and lets go at random times. */
import type { CmMessage, CmState, Random } from '@node-roce/sim';
import type { Life } from './life.ts';
import { makeSide } from './make-side.ts';
import type { Side, SideEvent, SideName } from './sides.ts';
import { checkArrival, checkCall } from './table.ts';
import type { World } from './world.ts';

const MS = 1000;
const SERVICE = 0x0106_1d2fn;
/** A service that nobody listens to. */
const NOWHERE = 0x0106_1d30n;
/** Attempts to connect with a queue pair that the peer holds for connected. */
const MAX_ATTEMPTS = 5;

/** Numbers of queue pairs, from here on; after a restart, again from here. */
const FIRST_QPN: Record<SideName, number> = { A: 0x1000, B: 0x2000 };

/** A question for a datagram service. */
interface Question {
  id: number;
  answers: number;
  canceled: boolean;
  forgotten: boolean;
}

/** Habits of a seed's programs; shares are 0 … 1. */
export interface Temper {
  /** Connections and questions that a side begins. */
  attempts: number;
  /** Spread of the beginnings, ms. */
  spread: number;
  /** Share of requests and replies that wait for long; of these requests, those that wait for good. */
  slow: number;
  forgets: number;
  destroys: number;
  restarts: number;
  backlog: number;
}

/** Plans and decisions of one side, and the events that it got. */
export class Program {
  readonly lives: Life[] = [];
  readonly questions: Question[] = [];
  /** Questions of the peer's that wait: request ids. */
  readonly asked = new Map<number, number>();
  readonly complaints: string[] = [];
  readonly #world: World;
  readonly #random: Random;
  readonly #name: SideName;
  readonly #temper: Temper;
  readonly #current = new Map<number, Life>();
  #qpn: number;
  #retired = false;

  constructor(world: World, name: SideName, random: Random, temper: Temper) {
    this.#world = world;
    this.#name = name;
    this.#random = random;
    this.#temper = temper;
    this.#qpn = FIRST_QPN[name];
  }

  get #side(): Side {
    return this.#world.sides[this.#name];
  }

  /** Plans the calls that the program makes by itself. */
  begin(): void {
    this.#side.listen(SERVICE, this.#temper.backlog);
    const { attempts, spread, restarts } = this.#temper;
    for (let i = 0; i < attempts; i++) {
      // Some at the same moment as the other side's.
      const at = this.#random.chance(0.3) ? i * 10 * MS : this.#random.between(0, spread * MS);
      if (this.#random.chance(0.15)) this.#world.at(at, () => this.#ask());
      else this.#world.at(at, () => this.connect());
    }
    for (let i = 0; i < restarts; i++)
      this.#world.at(this.#random.between(50 * MS, spread * MS), () => this.#restart());
  }

  connect(qpn = this.#qpn++, attempt = 1): void {
    if (this.#retired) return;
    const serviceId = this.#random.chance(0.05) ? NOWHERE : SERVICE;
    const id = this.#side.connect(serviceId, qpn, this.#world.now);
    const life = this.#add(id, 'active', { qpn, serviceId, attempt });
    this.#world.count('connects');
    if (this.otherConnects()) this.#world.count('connects while the other side does');
    if (this.#random.chance(this.#temper.destroys)) this.#later(life, 0, 150, () => this.#destroy(life));
  }

  /** The life that a message is for: by our id, or by the peer's where it does not know ours. */
  #lifeOf(message: CmMessage): Life | undefined {
    const ofPeer = message.name === 'REQ' || (message.name === 'REJ' && message.remoteId === 0);
    return this.lives.findLast((one) => {
      if (one.forgotten) return false;
      if (!('localId' in message)) return false;
      if (ofPeer) return one.role === 'passive' && one.remoteId === message.localId;
      return 'remoteId' in message && one.communicationId === message.remoteId;
    });
  }

  /** Gives a message to the side: counts it by the state that it comes in, and compares what becomes of it with the tables. */
  arrived(message: CmMessage, receive: () => string[]): void {
    if (message.name === 'SIDR_REQ' || message.name === 'SIDR_REP') {
      receive();
      return;
    }
    const life = this.#lifeOf(message);
    const before = life ? this.#side.state(life.id) : 'NONE';
    this.#world.count(`${this.#side.kind} takes ${message.name} in ${before}`);
    const answers = receive();
    const after = life ? this.#side.state(life.id) : 'NONE';
    if (this.#side.kind === 'product') {
      const complaint = checkArrival(life, message, { before, after, answers });
      if (complaint) this.complaints.push(`${this.#name}: ${complaint}`);
    }
    if (life?.role === 'active' && message.name === 'REP' && after === 'REP_RCVD' && before !== after)
      life.remoteId = message.localId;
  }

  /** Lets go of everything, and begins nothing more. */
  retire(): void {
    this.#retired = true;
    for (const life of this.lives) if (!life.forgotten) this.#destroy(life);
    for (const id of this.asked.keys()) this.#side.destroy(id, this.#world.now);
    this.asked.clear();
    this.#side.unlisten(this.#world.now);
  }

  /** Takes the events of the side. */
  hear(): void {
    for (const event of this.#side.events.splice(0)) this.#hear(event);
  }

  #add(id: number, role: Life['role'], more: Partial<Life>): Life {
    const life: Life = {
      side: this.#name,
      id,
      role,
      communicationId: this.#side.communicationId(id),
      remoteId: 0,
      qpn: 0,
      established: 0,
      ends: [],
      calls: [],
      destroyed: false,
      forgotten: false,
      gone: false,
      serviceId: SERVICE,
      attempt: 1,
      ...more,
    };
    if (this.#current.get(id)?.gone === false) this.complaints.push(`${this.#name} ${id}: the id is in use`);
    this.lives.push(life);
    this.#current.set(id, life);
    return life;
  }

  /** Does something in a while, if the id is still the program's. */
  #later(life: Life, from: number, to: number, run: () => void): void {
    this.#world.after(this.#random.between(from * MS, to * MS), () => {
      if (!life.destroyed && !life.forgotten) run();
    });
  }

  #call(life: Life, name: string, call: (side: Side) => boolean): void {
    const state = this.#side.state(life.id);
    if (!call(this.#side)) {
      this.#world.count(`${name} too late`);
      return;
    }
    this.#sent(life, name, state);
    life.calls.push(`${name} in ${state}`);
    this.#world.note(this.#name, `calls ${name} of ${life.communicationId.toString(16)} in ${state}`);
    this.#world.count(`${this.#side.kind} ${name} in ${state}`);
  }

  #destroy(life: Life): void {
    if (life.destroyed) return;
    const state: CmState | 'NONE' = this.#side.state(life.id);
    life.destroyed = true;
    life.calls.push(`destroy in ${state}`);
    this.#world.note(this.#name, `calls destroy of ${life.communicationId.toString(16)} in ${state}`);
    if (state !== 'NONE') this.#world.count(`${this.#side.kind} destroy in ${state}`);
    this.#side.destroy(life.id, this.#world.now);
    this.#sent(life, 'destroy', state);
  }

  /** Compares the messages of a call with the tables. */
  #sent(life: Life, name: string, state: CmState | 'NONE'): void {
    const answers = this.#world.collectFrom(this.#name);
    if (name === 'LAP' || this.#side.kind === 'model') return;
    const complaint = checkCall(name, state, answers);
    if (complaint) this.complaints.push(`${this.#name} ${life.communicationId.toString(16)}: ${complaint}`);
  }

  #nameOf(event: SideEvent): string {
    if (event.kind === 'disconnected') return `disconnected ${event.cause}`;
    if (event.kind === 'unreachable') return `unreachable ${this.#current.get(event.id)?.role}`;
    return event.kind;
  }

  #hear(event: SideEvent): void {
    const { kind, id } = event;
    this.#world.count(`${this.#side.kind} hears ${this.#nameOf(event)}`);
    if (kind === 'question') {
      this.#question(id, event.requestId);
      return;
    }
    if (kind === 'answer' || kind === 'unanswered') {
      this.#answered(id, kind);
      return;
    }
    if (kind === 'request') {
      this.#request(this.#add(id, 'passive', { remoteId: event.remoteId }));
      return;
    }
    const life = this.#current.get(id);
    if (life === undefined) {
      this.complaints.push(`${this.#name} ${id}: ${kind} of an id that is not known`);
      return;
    }
    this.#world.note(this.#name, `hears ${kind} of ${life.communicationId.toString(16)}`);
    if (life.destroyed) this.complaints.push(`${this.#name} ${id}: ${kind} after destroy`);
    if (life.gone) this.complaints.push(`${this.#name} ${id}: ${kind} after its end`);
    switch (event.kind) {
      case 'response':
        this.#response(life);
        break;
      case 'established':
        this.#established(life);
        break;
      case 'rejected':
        life.ends.push(`rejected ${event.reason}`);
        // Once the peer has ended the old connection, the queue pair can be used anew.
        if (event.reason === 10 && life.attempt < MAX_ATTEMPTS)
          this.#world.after(400 * MS, () => this.connect(life.qpn, life.attempt + 1));
        break;
      case 'unreachable':
        life.ends.push('unreachable');
        break;
      case 'closing':
        life.ends.push('disconnected peer');
        if (this.#random.chance(0.9)) this.#later(life, 0, 50, () => this.#disconnect(life));
        else this.#later(life, 0, 100, () => this.#destroy(life));
        break;
      case 'disconnected':
        life.ends.push(`disconnected ${event.cause}`);
        break;
      case 'gone':
        life.gone = true;
    }
  }

  #disconnect(life: Life): void {
    this.#call(life, 'disconnect', (side) => side.disconnect(life.id, this.#world.now));
  }

  #delay(life: Life): void {
    this.#later(life, 0, 20, () => this.#call(life, 'delay', (side) => side.delay(life.id, this.#world.now)));
  }

  #request(life: Life): void {
    const random = this.#random;
    const { slow, destroys } = this.#temper;
    const isSlow = random.chance(slow);
    // Slow programs ask for more time (MRA).
    if (isSlow || random.chance(0.3)) this.#delay(life);
    if (random.chance(destroys)) this.#later(life, 0, 200, () => this.#destroy(life));
    if (isSlow && random.chance(this.#temper.forgets)) return;
    const [from, to] = isSlow ? [200, 2500] : [0, 40];
    this.#later(life, from, to, () => {
      if (random.chance(0.12)) {
        this.#call(life, 'reject', (side) => side.reject(life.id, this.#world.now));
        return;
      }
      life.qpn = this.#qpn++;
      this.#call(life, 'accept', (side) => side.accept(life.id, life.qpn, this.#world.now));
      // Programs that take back what they accepted.
      if (random.chance(destroys / 2)) this.#later(life, 0, 60, () => this.#destroy(life));
    });
  }

  #response(life: Life): void {
    const random = this.#random;
    const isSlow = random.chance(this.#temper.slow);
    if (isSlow || random.chance(0.2)) this.#delay(life);
    const [from, to] = isSlow ? [100, 500] : [0, 20];
    this.#later(life, from, to, () => {
      if (random.chance(0.08)) this.#call(life, 'reject', (side) => side.reject(life.id, this.#world.now));
      else this.#call(life, 'ready', (side) => side.ready(life.id, this.#world.now));
    });
  }

  #established(life: Life): void {
    const random = this.#random;
    life.established++;
    if (life.ends.length > 0) this.complaints.push(`${this.#name} ${life.id}: established after its end`);
    if (life.role === 'active' && random.chance(0.5)) this.onReady(life);
    if (random.chance(0.1))
      this.#later(life, 0, 50, () =>
        this.#call(life, 'LAP', (side) => side.loadAlternatePath(life.id, this.#world.now)),
      );
    const what = random.unit();
    // Both ends of some disconnect in the same moment.
    const wait = random.chance(0.4) ? [100, 101] : [0, 400];
    if (what < 0.5) this.#later(life, wait[0], wait[1], () => this.#disconnect(life));
    else if (what < 0.5 + this.#temper.destroys) this.#later(life, 0, 400, () => this.#destroy(life));
  }

  /** Whether the other side has a REQ out. */
  otherConnects: () => boolean = () => false;

  /** An initiator may send: its first packet may come before its RTU. */
  onReady: (life: Life) => void = () => {};

  #ask(): void {
    if (this.#retired) return;
    const serviceId = this.#random.chance(0.2) ? NOWHERE : SERVICE;
    const id = this.#side.ask(serviceId, this.#world.now);
    const question: Question = { id, answers: 0, canceled: false, forgotten: false };
    this.questions.push(question);
    this.#world.count('questions');
    if (this.#random.chance(0.1)) {
      this.#world.after(this.#random.between(0, 100 * MS), () => {
        if (question.forgotten || question.answers > 0) return;
        question.canceled = true;
        this.#side.destroy(id, this.#world.now);
      });
    }
  }

  #question(id: number, requestId: number): void {
    if ([...this.asked.values()].includes(requestId))
      this.complaints.push(`${this.#name}: question ${requestId.toString(16)} comes twice`);
    this.asked.set(id, requestId);
    if (this.#random.chance(this.#temper.slow * this.#temper.forgets)) return;
    this.#world.after(this.#random.between(0, 40 * MS), () => {
      if (!this.asked.delete(id)) return;
      if (this.#random.chance(0.8)) this.#side.answer(id, this.#qpn);
      else this.#side.destroy(id, this.#world.now);
    });
  }

  #answered(id: number, kind: string): void {
    const question = this.questions.findLast((one) => one.id === id);
    if (!question) this.complaints.push(`${this.#name}: ${kind} to no question`);
    else if (question.canceled)
      this.complaints.push(`${this.#name}: ${kind} to a question that was taken back`);
    else question.answers++;
  }

  /** The side loses its memory, and its queue pairs get the numbers of the old ones. */
  #restart(): void {
    if (this.#retired) return;
    this.hear();
    for (const life of this.lives) life.forgotten = true;
    for (const question of this.questions) question.forgotten = true;
    this.asked.clear();
    this.#current.clear();
    this.#world.count('restarts');
    this.#world.sides[this.#name] = makeSide(this.#side.kind, this.#name, () => this.#random.next());
    this.#side.listen(SERVICE, this.#temper.backlog);
    this.#qpn = FIRST_QPN[this.#name];
    for (let i = 0; i < 5; i++) this.connect();
  }
}
