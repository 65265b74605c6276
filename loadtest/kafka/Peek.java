// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

import com.sun.jdi.*;
import com.sun.jdi.connect.*;
import com.sun.jdi.event.*;
import com.sun.jdi.request.*;
import java.io.*;
import java.util.*;

// Prints, for every log of a running broker of Kafka 3.6 to 3.8, one line
//   topic partition topicId highestOffsetInRemoteStorage
// and for every copy task of its remote log manager one
//   task topic partition topicId copiedOffset
// where copiedOffset is "none" until the task has looked for it. The broker must have
// been started with -agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=PORT.
//
// With a second argument, "hold", every copy to the remote storage hangs, from where its
// segment is announced (COPY_SEGMENT_STARTED), until this program ends. It prints "ready",
// and "held" when the first copy hangs; then it prints the lines above for each line of input.
public class Peek {
    public static void main(String[] args) throws Exception {
        AttachingConnector socket = null;
        for (AttachingConnector c : Bootstrap.virtualMachineManager().attachingConnectors()) {
            if (c.transport().name().equals("dt_socket")) socket = c;
        }
        Map<String, Connector.Argument> to = socket.defaultArguments();
        to.get("hostname").setValue("127.0.0.1");
        to.get("port").setValue(args[0]);
        to.get("timeout").setValue("10000");
        VirtualMachine vm = socket.attach(to);
        try {
            if (args.length == 1) {
                peek(vm);
            } else {
                hold(vm);
                for (Scanner in = new Scanner(System.in); in.hasNextLine(); in.nextLine()) peek(vm);
            }
        } finally {
            vm.dispose();
        }
    }

    static void hold(VirtualMachine vm) throws Exception {
        Method copy = vm.classesByName("org.apache.kafka.server.log.remote.storage.LocalTieredStorage").get(0)
            .methodsByName("copyLogSegmentData").get(0);
        BreakpointRequest stop = vm.eventRequestManager().createBreakpointRequest(copy.location());
        stop.setSuspendPolicy(EventRequest.SUSPEND_EVENT_THREAD);
        stop.enable();
        System.out.println("ready");
        for (boolean held = false; !held; )
            for (Event e : vm.eventQueue().remove()) held |= e instanceof BreakpointEvent;
        System.out.println("held");
    }

    static void peek(VirtualMachine vm) {
        for (ReferenceType type : vm.classesByName("kafka.log.UnifiedLog"))
            for (ObjectReference log : type.instances(0)) log(log);
        for (ReferenceType type : vm.classesByName("kafka.log.remote.RemoteLogManager$RLMTask"))
            for (ObjectReference task : type.instances(0)) task(task);
        System.out.println("end");
    }

    static Value get(ObjectReference object, String field) {
        Field f = object.referenceType().fieldByName(field);
        if (f == null) throw new IllegalStateException(object.referenceType().name() + " has no field " + field);
        return object.getValue(f);
    }

    static ObjectReference ref(ObjectReference object, String field) {
        return (ObjectReference) get(object, field);
    }

    static String partition(ObjectReference topicPartition, ObjectReference id) {
        long most = ((LongValue) get(id, "mostSignificantBits")).value();
        long least = ((LongValue) get(id, "leastSignificantBits")).value();
        return ((StringReference) get(topicPartition, "topic")).value() + " " + get(topicPartition, "partition")
            + " " + String.format("%016x%016x", most, least);
    }

    static void log(ObjectReference log) {
        ObjectReference id = ref(log, "_topicId");
        if (id == null || id.referenceType().name().equals("scala.None$")) return;
        System.out.println(partition(ref(ref(log, "localLog"), "topicPartition"), ref(id, "value"))
            + " " + get(log, "highestOffsetInRemoteStorage"));
    }

    static void task(ObjectReference task) {
        ObjectReference of = ref(task, "topicIdPartition"), copied = ref(task, "copiedOffsetOption");
        String offset = "none";
        if (copied.referenceType().name().equals("java.util.OptionalLong")) { // 3.6
            if (((BooleanValue) get(copied, "isPresent")).value()) offset = get(copied, "value").toString();
        } else if (ref(copied, "value") != null) {
            offset = get(ref(copied, "value"), "offset").toString();
        }
        System.out.println("task " + partition(ref(of, "topicPartition"), ref(of, "topicId")) + " " + offset);
    }
}
