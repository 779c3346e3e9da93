// What runs of this server did since the page was opened, by pipeline.

const runs = new Map();

// Returns whether the event changes the picture of a pipeline.
export function noteEvent(event, pipeline, facts) {
  if (event === "watching" || event === "missed") runs.clear(); // what happened before is not known
  if (event === "run_started") runs.set(pipeline, begin(facts.run));
  const run = runs.get(pipeline) || begin(facts?.run);
  if (event === "batch_settled") {
    runs.set(pipeline, run);
    run.batches += 1;
    run.read += facts.read || 0;
    run.refused += facts.nacked || 0;
    for (const [to, number] of Object.entries(facts.delivered || {})) run.delivered[to] = (run.delivered[to] || 0) + number;
    run.lanes[facts.lane] = { of: facts.of, number: facts.number };
  }
  if (event === "batch_planned" || event === "batch_resumed") {
    runs.set(pipeline, run);
    run.doing[facts.lane] = facts.of;
  }
  if (event === "run_ended") runs.delete(pipeline);
  return ["run_started", "batch_settled", "batch_planned", "run_ended"].includes(event);
}

export function findLive(pipeline) {
  return runs.get(pipeline) || null;
}

function begin(run) {
  return { run, since: new Date().toISOString(), batches: 0, read: 0, refused: 0, delivered: {}, lanes: {}, doing: {} };
}
